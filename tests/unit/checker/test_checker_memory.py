"""Small files that ask for much: memory stays within a constant plus a multiple of their size."""

from __future__ import annotations

import hashlib
import io
import struct
import time
import tracemalloc
import zipfile
from typing import Any

import certificate_cases as cases
import numpy as np
import pytest

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs.structure_certificates import encode_claim
from cg4ai.proofs.structure_certificates import seal_arrays as packed
from cg4ai.records import MemberState
from cg4ai.rules.regions import Box
from cg4ai_checker import Rejected, check, command, verdict
from cg4ai_checker.equality import components, forms_of
from raising import raises

MIB = 2**20
PER_BYTE = 40  # docs/guarantees.md


def constant(inputs, outputs=1, tree=(-1,)):
    """A certificate that a constant stays below 2, with this tree of cells."""
    members = ConstantMembers(np.ones((1, outputs)), inputs)
    ensemble = Ensemble((Part(members, np.zeros(1, int), np.ones(1)),), Layout.single(outputs))
    rules = cases.AffineRules(np.eye(1, outputs), np.zeros((1, outputs, inputs)))
    region = Box(np.zeros(inputs), np.ones(inputs))
    wanted = cases.requirement(rules, None, None, 2.0, region=region)
    return cases.build_certificate(
        ensemble, requirement=wanted, certification=cases.certification([2.0], [list(tree)])
    )


def peak(work):
    """The most memory that was held during `work`, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(data, reason):
    def work():
        with pytest.raises(Rejected, match=reason) as caught:
            check(data)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600

    return work


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_tree_as_deep_as_it_has_nodes_takes_little_memory(side):
    depth, inputs = 30_000, 500
    tree = [0] * depth + [-1] * (depth + 1) if side == "left" else [0, -1] * depth + [-1]
    data = constant(inputs, tree=tree)
    # a copy of both corners at each node would take 8 kB times the depth, 240 MB
    assert peak(lambda: check(data)) < 100 * MIB + PER_BYTE * len(data)


def sealed(archive):
    digest = hashlib.sha256(archive).hexdigest()
    return f"cg4ai-certificate 3 sha256 {digest}\n".encode() + archive


def test_entries_on_top_of_each_other_are_refused():
    """A hundred entries of a directory that all point to one array of 4 MiB."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        raw = io.BytesIO()
        np.save(raw, np.zeros(MIB // 2))
        archive.writestr("a.npy", raw.getvalue())
        first = archive.infolist()[0]
        for number in range(100):
            entry = zipfile.ZipInfo(f"{number}.npy")
            for name in ("CRC", "compress_size", "file_size", "header_offset"):
                setattr(entry, name, getattr(first, name))
            archive.filelist.append(entry)
        archive._didModify = True  # type: ignore[attr-defined]
    data = sealed(packed.getvalue())
    assert len(data) < 5 * MIB
    work = refused(data, "claim more bytes than it has")
    assert peak(work) < 16 * MIB + PER_BYTE * len(data)


def test_many_empty_entries_take_little_memory():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for number in range(20_000):
            archive.writestr(f"{number}.npy", b"")
    data = sealed(packed.getvalue())
    assert peak(refused(data, "cannot be read")) < 16 * MIB + PER_BYTE * len(data)


def test_a_declared_size_beyond_the_file_is_refused():
    archive = bytearray(constant(1).partition(b"\n")[2])
    place = archive.index(b"PK\x01\x02")
    archive[place + 20 : place + 28] = struct.pack("<II", 2**31 - 2, 2**31 - 2)
    assert peak(refused(sealed(bytes(archive)), "claim more bytes|cannot be read")) < 16 * MIB


def test_inputs_times_outputs_beyond_the_file_are_refused():
    data = constant(6000, 6000)
    assert peak(refused(data, "inputs times outputs exceed")) < 16 * MIB + PER_BYTE * len(data)


# ---- JSON ------------------------------------------------------------------------------------


def with_claim(text):
    def change(claim, arrays):
        arrays["claim"] = np.frombuffer(text.encode(), np.uint8)

    content = cases.parse_certificate(constant(1))
    change(content.claim, content.arrays)
    return cases.seal_arrays(content.arrays)


def replaced(key, value):
    """The claim with the JSON text `value` at `key`."""
    claim = cases.parse_certificate(constant(1)).claim
    claim[key] = "HERE"
    return with_claim(cases.json.dumps(claim).replace('"HERE"', value))


HOSTILE = {
    "nested lists": "[" * 100_000,
    "nested objects": '{"a":' * 100_000,
    "whole and nested": "[" * 100_000 + "]" * 100_000,
    "a long number": "9" * 5000,
    "no object": "[]",
    "null": "null",
    "not text": "\\ud800",
}
VALUES = (
    *("[" * 900 + "]" * 900, "9" * 5000, "9" * 4000, "1e999", "null", '{"a": 1}', "true"),
    '"' + "x" * 10_000 + '"',
)
KEYS = (
    *("title", "requirement", "region", "input_size", "output_size", "blocks", "parts", "rules"),
    *("margin", "made_by"),
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_claim_that_is_none_gets_one_line(name, tmp_path, capsys):
    data = with_claim(HOSTILE[name])
    assert peak(refused(data, "claim")) < 16 * MIB + PER_BYTE * len(data)
    (tmp_path / "certificate.cg4ai").write_bytes(data)
    assert command.run(tmp_path / "certificate.cg4ai", folder=None, quiet=True) == 1
    said = capsys.readouterr().err
    assert said.startswith("REJECTED: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_another_kind_gets_one_line(key):
    for value in VALUES:
        refused(replaced(key, value), "must be|no blocks and parts|no valid JSON|too deeply")()


@pytest.mark.parametrize("key", ["kind", "config", "blocks", "arrays"])
def test_a_part_of_another_kind_gets_one_line(key):
    part = cases.parse_certificate(constant(1)).claim["parts"][0]
    part[key] = "HERE"
    reason = "must be|no valid JSON|too deeply|config other than|need the arrays"
    for value in VALUES:
        refused(replaced("parts", cases.json.dumps([part]).replace('"HERE"', value)), reason)()


def test_many_small_objects_take_little_memory():
    data = replaced("parts", "[" + ",".join(['{"a":[]}'] * 100_000) + "]")
    assert peak(refused(data, "part 0")) < 16 * MIB + PER_BYTE * len(data)


HEADING = {"title": "t", "requirement": "r", "made_by": {"cg4ai": "0"}, "about": {}}


def of_kind(kind, inputs, outputs, arrays, **more):
    """A certificate of a kind that speaks of every input."""
    sizes = {"input_size": inputs, "output_size": outputs}
    claim = {**HEADING, "kind": kind, **sizes, **more}
    return packed({**arrays, "claim": encode_claim(claim)})


def of_shape(inputs, outputs, member, arrays, **asks):
    wanted = {"shape": "monotone", "features": [[0, 1]], "output": None, "ordered": False}
    wanted |= {"logits": False, **asks}
    return of_kind("shape", inputs, outputs, arrays, asks=wanted, members=[member])


def test_names_of_many_features_are_not_listed():
    inputs = 2**22
    member = {"kind": "constant", "config": {"input_size": inputs}}
    data = of_shape(inputs, 1, member, {"0.values": np.zeros((1, 1))})
    assert peak(lambda: str(verdict(data))) < 10 * MIB
    data = of_shape(inputs, inputs, member, {"0.values": np.zeros((1, 1))}, ordered=True)
    with raises(Rejected, "rejected"):
        verdict(data)


def test_more_members_than_bytes_are_refused():
    """Trees of no node take no byte, however many."""
    member = {
        "kind": "tree",
        "config": {"input_size": 1, "link": "identity", "single_precision": False},
    }
    data = of_shape(1, 1, member, {"0.value": np.zeros((2**31, 0, 0, 1))})
    with pytest.raises(Rejected):
        verdict(data)


def test_sets_around_each_other_are_not_followed_without_end():
    member: dict[str, Any] = {"kind": "constant", "config": {"input_size": 1}}
    arrays: dict[str, Any] = {}
    start = "0."
    for _ in range(17):
        own = {"chains": [[0, 1]], "totals": []}
        member = {"kind": "arranged", "config": {"inner": member, "set": own}}
        arrays |= {f"{start}set.low": np.zeros(2), f"{start}set.high": np.ones(2)}
        start += "inner."
    arrays[f"{start}values"] = np.zeros((1, 2))
    with raises(Rejected, "memory"):
        verdict(of_shape(1, 2, member, arrays))
    twice = member
    for _ in range(15):
        twice = twice["config"]["inner"]
    start = "0." + "inner." * 15
    own = {f"0.{name.removeprefix(start)}": one for name, one in arrays.items() if start in name}
    assert "these 1 members" in str(verdict(of_shape(1, 2, twice, own)))


LONG = 6000  # its square is above what a product may take, and thin matrices are small


def thin_ratio():
    whole, ones = np.zeros(LONG, np.int64), np.ones((LONG, 1))
    tree: dict[str, Any] = {name: np.zeros(1, np.int64) for name in ("feature", "left", "right")}
    tree |= {"threshold": np.zeros(1), "slope": np.zeros((1, LONG, 1))}
    prices = {"arc_prices": ones, "shield_prices": ones, "rule_prices": 0 * ones}
    network = {"incidence": ones, "capacity": np.ones(1), "path_demand": whole}
    demands = {"lower": np.ones(1), "upper": np.ones(1), "unit": np.ones(1)}
    rest = {"ratio": np.array(1.5), "offset": np.zeros((1, LONG)), "choice": np.zeros((1, 1), int)}
    rest["safe_split"] = np.full(LONG, 1 / LONG)
    return of_kind("ratio", 1, LONG, {**tree, **prices, **network, **demands, **rest})


def thin_equality():
    arrays = {"matrix": np.zeros((LONG, 1)), "offset": np.zeros(LONG), "slope": np.zeros((LONG, 1))}
    arrays |= {"form0.offset": np.zeros(1), "form0.slope": np.zeros((1, 1))}
    return of_kind("equality", 1, 1, {**arrays, "form0.basis": np.zeros((1, LONG))}, forms=1)


def thin_outputs():
    arrays = {"matrix": np.ones((LONG, 1)), "bound": np.zeros(LONG)}
    arrays |= {"form0.points": np.ones((LONG, 1)), "form0.term": np.zeros(LONG, np.int64)}
    return of_kind("outputs", 1, 1, arrays, forms=1)


@pytest.mark.parametrize("made", [thin_ratio, thin_equality, thin_outputs])
def test_products_of_thin_matrices_are_refused(made):
    data = made()

    def work():
        with raises(Rejected, "memory"):
            verdict(data)

    assert peak(work) < 20 * MIB


def test_prices_of_no_link_are_refused():
    arrays = {"incidence": np.ones((1, 0)), "capacity": np.ones(0), "ratio": np.array(1.5)}
    arrays |= {"lower": np.ones(1), "upper": np.ones(1), "path_demand": np.zeros(1, np.int64)}
    with raises(Rejected, "empty"):
        verdict(of_kind("ratio", 1, 1, arrays))


def test_many_terms_take_time_in_proportion(monkeypatch):
    """One comparison of all points for each of the terms would take minutes of the processor."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    count = 200_000
    points = np.random.default_rng(0).integers(1, 5, (count, 1)).astype(float)
    term = np.arange(count) // 2
    least = points.reshape(-1, 2).min(1).sum()
    arrays = {"matrix": np.ones((1, 1)), "form0.points": points, "form0.term": term}
    found = verdict(of_kind("outputs", 1, 1, {**arrays, "bound": np.array([least - 1])}, forms=1))
    assert found.seconds < 5
    with raises(Rejected, "not-proven"):
        verdict(of_kind("outputs", 1, 1, {**arrays, "bound": np.array([least + 1])}, forms=1))


def behind_shields(depth, outputs=3):
    """A stored constant behind so many shields, each with a constant as its anchor."""
    arrays = {"values": np.ones((1, outputs))}
    constant: dict[str, Any] = {"kind": "constant", "config": {"input_size": 1}}
    record = constant
    for _ in range(depth):
        arrays = {f"inner.{name}": one for name, one in arrays.items()}
        arrays["shield.anchor.values"] = np.ones((1, outputs))
        shield = {"anchor": constant, "guards": [], "coupled": [[0]]}
        record = {"kind": "shielded", "config": {"inner": record, "shield": shield}}
    return MemberState(record["kind"], record["config"], arrays)


def test_shields_around_each_other_do_not_multiply_forms_without_end():
    assert len(list(forms_of(behind_shields(1), np.zeros(1, int)))) == 5  # own, anchor, three mixed
    with raises(Rejected, "memory"):
        list(forms_of(behind_shields(5), np.zeros(1, int)))
    with raises(Rejected, "memory"):
        list(forms_of(behind_shields(2, outputs=1200), np.zeros(1, int)))


def test_outputs_that_move_together_take_memory_in_proportion():
    size = 10_000
    record = {"coupled": [list(range(size - 1)), [size - 1]], "guards": []}

    def work():
        found = components(record, {}, size)
        assert (found[:-1] == found[0]).all()
        assert found[-1] != found[0]

    assert peak(work) < 20 * MIB
