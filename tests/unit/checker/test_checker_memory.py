"""Small files that ask for much: memory stays within a constant plus a multiple of their size."""

from __future__ import annotations

import hashlib
import io
import struct
import tracemalloc
import zipfile

import certificate_cases as cases
import numpy as np
import pytest

from cg4ai.checker import Rejected, check
from cg4ai.cli import check as command
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.rules.regions import Box

MIB = 2**20
PER_BYTE = 40  # docs/certificates.md


def constant(inputs, outputs=1, tree=(-1,)):
    """A certificate that a constant stays below 2, with this tree of cells."""
    members = ConstantMembers(np.ones((1, outputs)), inputs)
    ensemble = Ensemble((Part(members, np.zeros(1, int), np.ones(1)),), Layout.single(outputs))
    rules = cases.AffineRules(np.eye(1, outputs), np.zeros((1, outputs, inputs)))
    region = Box(np.zeros(inputs), np.ones(inputs))
    wanted = cases.requirement(rules, None, None, 2.0, region=region)
    return cases.certificate_bytes(
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
    return cases.sealed(content.arrays)


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
