"""Two readers of a run's folder: what loads is what the checker saw, or one of the two refuses.

Every field of ensemble.json and every array is changed and the folder sealed again, as by someone
who wants a certificate to be accepted for a model that predicts something else.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import certificate_cases as cases
import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

import cg4ai
from cg4ai.apps.tabular.description import describe_subject as describe_table
from cg4ai.apps.tabular.description import restore_subject as table_of
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.saved import describe, load
from cg4ai.errors import Cg4aiError, RunFolderError
from cg4ai.layout import Layout
from cg4ai.members import (
    ArrangedMembers,
    CompletedMembers,
    ConstantMembers,
    NetworkArchitecture,
    ShieldedMembers,
    from_sklearn,
)
from cg4ai.members.mixture import Part
from cg4ai.members.shielded import Shield
from cg4ai.members.signed_networks import SignedArchitecture
from cg4ai.proofs.certificate import write_certificate
from cg4ai.routing import Instance, instance
from cg4ai.routing.network.description import describe_instance
from cg4ai.routing.network.description import restore_instance as network_of
from cg4ai.routing.prove.guarantee import write_shield_proof
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.agent_members import budget_shield, local_networks
from cg4ai.routing.train.joint import capacity_shield, joint_network
from cg4ai.routing.train.problem import capacity
from cg4ai.rules import Box, Equality, Linear, Monotone, Ordered, Quadratic, Range, SumTo
from cg4ai.rules.guards import guard_of
from cg4ai.rules.output_sets import join_output_rules
from cg4ai.runs import files
from cg4ai.seeds import generator
from cg4ai_checker import Unreadable, verdict
from cg4ai_checker.folder_reader import read_folder
from cg4ai_checker.run_folder import compare
from small_network import make_shared_graph

MOST = 2  # values that are tried at each place: a sample
BOX = Box([0.0, 0.0], [1.0, 1.0])
CAP = Linear(BOX, [[1.0, 0.0, 0.0]], 50.0, "<=", name="cap")
TIGHT = Linear(BOX, [[1.0, 1.0, 0.0], [0.0, -1.0, 1.0]], [0.6, 0.7], "<=", name="tight")
SQUARES = Quadratic(BOX, np.eye(3), 1.0, name="length")
ABOUT = {
    "application": "tabular",
    "features": ["age", "NaN"],  # a name that is a word for a float
    "columns": [
        {"name": "age", "kind": "number", "fill": 0.5, "empty": False, "values": []},
        {"name": "NaN", "kind": "number", "fill": 0.0, "empty": False, "values": []},
    ],
    "outputs": ["a", "b", "c"],
    "lower": [0.0, 0.0],
    "upper": [1.0, 1.0],
    "target": "loan",
    "task": "regression",
    "scores": "score",
}


@dataclass(frozen=True)
class Case:
    """A folder, the claim of its certificate, and how its application reads its description."""

    folder: Path
    claim: Any
    inputs: np.ndarray[Any, Any]
    describes: Callable[[Any], Any]


def of_table(folder: Path, ensemble: Ensemble, rule: Any) -> Case:
    ensemble.about.update(copy.deepcopy(ABOUT))
    ensemble.about["outputs"] = ensemble.about["outputs"][: ensemble.output_size]
    found = cg4ai.certify(ensemble, rule)
    assert found.status == "proven", found.note
    path = folder.parent / f"{folder.name}.cg4ai"
    write_certificate(path, ensemble, requirement=rule, certification=found)
    ensemble.save(folder)
    inputs = np.random.default_rng(0).uniform(-0.5, 1.5, size=(64, 2))
    return Case(folder, verdict(path).claim, inputs, table_of)


def mixed(*stacks: Any) -> Ensemble:
    return cases.mixture(np.random.default_rng(1), *stacks)


def net(inputs: int = 2, outputs: int = 3, **shape: Any) -> Any:
    return cases.network(np.random.default_rng(2), inputs, outputs, **{"hidden": (3,), **shape})


def of_network(folder: Path, members: Any, made: Instance) -> Case:
    part = Part(members, np.zeros(len(members), np.int64), np.full(len(members), 0.5))
    router = Ensemble((part,), Layout.single(members.output_size))
    router.about.update({"application": "routing", **describe_instance(made)})
    write_shield_proof(folder.parent, made, router)
    router.save(folder)
    file = folder.parent / "certificate.cg4ai"
    inputs = np.random.default_rng(0).uniform(0, 2, (64, len(made.demand_max))) * made.demand_max
    return Case(folder, verdict(file).claim, inputs, network_of)


def small() -> Instance:
    return instance(make_shared_graph(), 3, 3, load=0.99)


def networks_and_trees(folder: Path) -> Case:
    random = np.random.default_rng(0)
    stacks = (net(scale=np.array([2.0, 1.0]), skip=True), cases.trees(random, 2, 3))
    return of_table(folder, mixed(*stacks, cases.constants(random, 2, 3)), CAP)


def softmax(folder: Path) -> Case:
    rule = Linear(BOX, [[1.0, 0.0, 0.0]], 1.0, "<=", name="cap")
    return of_table(folder, mixed(net(output="softmax", activation="tanh")), rule)


def behind_a_shield(folder: Path) -> Case:
    shielded = mixed(net()).apply_shield([0.1, 0.1, 0.1], [TIGHT, SQUARES])
    return of_table(folder, shielded, TIGHT)


def shielded_members(folder: Path) -> Case:
    anchor = ConstantMembers([[0.1, 0.1, 0.1]], 2)
    shield = Shield(anchor, (guard_of(TIGHT, 3), guard_of(SQUARES, 3)), ((0, 1, 2),))
    return of_table(folder, mixed(ShieldedMembers(net(), shield)), SQUARES)


def output_sets(folder: Path) -> Case:
    made = join_output_rules((Range(-1, 1), Ordered((0, 1)), SumTo(0.5, low=-1)), 3)
    return of_table(folder, mixed(ArrangedMembers(net(), made)), Range(-1, 1))


def equality(folder: Path) -> Case:
    rule = Equality(None, [[1.0, 1.0, 1.0]], 2.0, name="balance")
    members = CompletedMembers(net(outputs=2), rule.completion(2))
    return of_table(folder, mixed(members), rule)


def shape(folder: Path) -> Case:
    rule = Monotone({0: 1})
    signed = SignedArchitecture(NetworkArchitecture(2, 1, hidden=(3,)), (rule,))
    x = np.random.default_rng(0).uniform(size=(80, 2))
    trees = HistGradientBoostingRegressor(max_iter=2, monotonic_cst=[1, 0]).fit(x, x[:, 0])
    networks = signed.members(signed.initialise(2, torch.Generator().manual_seed(0)))
    return of_table(folder, mixed(networks, from_sklearn(trees)), rule)


def router(folder: Path) -> Case:
    made = small()
    network = joint_network(made, hidden=(3,), stages=1)
    shield = capacity_shield(made, capacity(made, Recipe()), made.sample(20, 0))
    bare = network.members(network.initialise(2, generator(1)))
    return of_network(folder, ShieldedMembers(bare, shield), made)


def agents(folder: Path) -> Case:
    made = small()
    networks = local_networks(made, "source", hidden=(3,))
    shield = budget_shield(made, "source", made.sample(20, 0))
    bare = networks.members(networks.initialise(2, generator(1)))
    return of_network(folder, ShieldedMembers(bare, shield), made)


CASES = (
    *(networks_and_trees, softmax, behind_a_shield, shielded_members, output_sets),
    *(equality, shape, router, agents),
)


def seal(content: dict[str, Any]) -> dict[str, Any]:
    """With the SHA-256 that its content asks for."""
    plain = {name: value for name, value in content.items() if name != "sha256"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), **plain}


def stored(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "ensemble.json").read_text())
    return content


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside; of lists of numbers the first alone."""
    plain = isinstance(value, list) and all(isinstance(one, int | float | str) for one in value)
    items = value.items() if isinstance(value, dict) else enumerate(value[:1] if plain else value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def at(content: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        content = content[key]
    return content


def others(value: Any) -> Iterator[Any]:
    """What a careless reader might take for it, and what it should refuse."""
    yield from (None, "NaN", "Infinity", [], {}, -1, 2**62)
    if isinstance(value, bool):
        yield from (int(value), str(value).lower(), not value)
    elif isinstance(value, int):
        yield from (float(value), value + 0.5, bool(value), str(value), value + 1, [value])
    elif isinstance(value, float):
        yield from (str(value), value + 0.25, True, [value], -value - 1.0)
        yield from [int(value)] if value == int(value) else []
    elif isinstance(value, str):
        yield from (value + "x", [value], 0, 1.5, True)
    elif isinstance(value, list):
        yield from (value[::-1], value[:-1], value * 2, str(value), tuple(value[:1]))
        yield dict(enumerate(map(str, value)))
    elif value is not None:
        yield from ({**value, "more": 1}, list(value), {**value, "everywhere": True})


def changed(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(content)
    inner = at(result, place[:-1])
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return result


@pytest.fixture(scope="module", params=CASES, ids=lambda one: one.__name__)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    made: Case = request.param(tmp_path_factory.mktemp("readers") / "run")
    return made


@pytest.fixture
def folder(case: Case, quick_disk: None) -> Iterator[Path]:
    """The case's folder, which is as it was afterwards."""
    kept = {path: path.read_bytes() for path in case.folder.iterdir()}
    yield case.folder
    for path, data in kept.items():
        path.write_bytes(data)


def loaded(case: Case) -> Ensemble | None:
    """What loads, with the description that its application reads; None where that is refused."""
    try:
        ensemble = load(case.folder)
        if "application" in ensemble.about:
            case.describes(ensemble.about)
        return ensemble
    except Cg4aiError:
        return None


def seen(case: Case) -> bool:
    """Whether the checker takes the folder for what the certificate is about."""
    try:
        compare(case.claim, case.folder)
        return True
    except Cg4aiError:
        return False


def view(case: Case) -> tuple[Any, Any]:
    content, arrays = read_folder(case.folder)
    return {
        name: content[name] for name in content.keys() - {"format", "version", "arrays"}
    }, arrays


def refused_or_same(case: Case, expected: np.ndarray[Any, Any], what: str) -> bool:
    """Whether somebody refuses; else both must see one mixture, and that of the certificate."""
    ensemble = loaded(case)
    if ensemble is None or not seen(case):
        return True
    written, (record, arrays) = describe(ensemble), view(case)
    assert files.find_difference(record, files.to_plain(written.record)) is None, what
    assert not files.arrays_difference(arrays, written.arrays), what
    if not kept(case, ensemble):
        found = ensemble.predict(case.inputs, outside="ignore")
        np.testing.assert_array_equal(found, expected, err_msg=what)
    return False


def kept(case: Case, ensemble: Ensemble) -> bool:
    """Of rules that members keep by how they are built: that they do, whatever else changed."""
    y = ensemble.predict(case.inputs, outside="ignore")
    kind = type(case.claim).__name__
    if kind == "OutputClaim":
        assert (np.abs(y) <= 1 + 1e-9).all()
    elif kind == "EqualityClaim":
        np.testing.assert_allclose(y.sum(axis=1), 2.0, atol=1e-6)
    elif kind == "ShapeClaim":
        up = ensemble.predict(case.inputs + np.array([0.1, 0.0]), outside="ignore")
        assert (up >= y - 1e-9).all()
    elif case.claim.shield is not None:  # whatever is behind the shield, it is the claim's
        assert (ensemble.theta(torch.as_tensor(case.inputs)) >= 0).all()
    else:
        return False
    return True


def test_whole_folders_are_accepted_by_both(case: Case, folder: Path) -> None:
    assert loaded(case) is not None
    assert compare(case.claim, folder)
    expected = load(folder).predict(case.inputs, outside="ignore")
    assert not refused_or_same(case, expected, "whole")


def test_no_changed_field_is_read_in_two_ways(case: Case, folder: Path) -> None:
    content = stored(folder)
    expected = load(folder).predict(case.inputs, outside="ignore")
    refused = tried = 0
    random = Random(0)
    for place in places({name: one for name, one in content.items() if name != "sha256"}):
        if place[0] == "about" and case.describes is network_of and len(place) > 3:
            continue
        values = list(others(at(content, place)))
        for value in (..., *random.sample(values, MOST)):
            made = changed(content, place, value)
            (folder / "ensemble.json").write_text(json.dumps(seal(made)))
            tried += 1
            refused += refused_or_same(case, expected, f"{place} = {value!r:.60}")
    assert tried > 60
    assert refused > 0.8 * tried


def hostile(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    yield from (array[None], array[..., None], array.ravel(), array[:0], array[::-1])
    yield from (array.astype(kind) for kind in (np.float32, np.int64, np.float64, np.int32, bool))
    if array.dtype.kind == "f":
        yield from (array + 0.25, np.full_like(array, math.nan), np.full_like(array, math.inf))
    else:
        yield from (array + 1, -array - 1)


def test_no_changed_array_is_read_in_two_ways(case: Case, folder: Path) -> None:
    content, expected = stored(folder), load(folder).predict(case.inputs, outside="ignore")
    arrays = files.read_arrays(folder / "members.safetensors")

    def store(made: dict[str, Any], what: str) -> None:
        digest = files.write_arrays(folder / "members.safetensors", made)
        (folder / "ensemble.json").write_text(json.dumps(seal({**content, "arrays": digest})))
        refused_or_same(case, expected, what)

    for name, array in arrays.items():
        store({one: own for one, own in arrays.items() if one != name}, f"without {name}")
        for other in hostile(array):
            with np.errstate(all="ignore"):
                store({**arrays, name: other}, f"{name} {other.dtype} {other.shape}")
    for more in ("0.more", "anchor.0.values", "guard.0.limit", "0.guard.7.limit", "7.values", "x"):
        store({**arrays, more: np.ones((1, 3))}, f"with {more}")
        assert loaded(case) is None


def before_weights(more: str) -> Callable[[str], str]:
    return lambda text: text.replace('"weights": [', f'{more}"weights": [', 1)


def in_weights(more: str) -> Callable[[str], str]:
    return lambda text: text.replace('"weights": [[', f'"weights": [[{more}, ', 1)


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("a key twice", before_weights('"weights": [[9.0]], ')),
        ("bare words", in_weights("NaN")),
        ("a huge integer", in_weights(str(10**30))),
        ("a huge float", in_weights("1e999")),
        ("deep", before_weights(f'"x": {"[" * 500}{"]" * 500}, ')),
        ("deeper", before_weights(f'"x": {"[" * 10**5}{"]" * 10**5}, ')),
        ("not UTF-8", lambda text: text.encode("utf-16")),
        ("no object", lambda text: "[]"),
        ("nothing", lambda text: ""),
    ],
)
def test_json_that_says_two_things_is_refused_by_both(
    what: str, change: Callable[[str], str | bytes], tmp_path: Path
) -> None:
    """A key that stands twice keeps its seal: the seal is of the last of the two."""
    made = networks_and_trees(tmp_path / "run")
    data = change(json.dumps(stored(made.folder)))
    raw = data if isinstance(data, bytes) else data.encode()
    (made.folder / "ensemble.json").write_bytes(raw)
    with pytest.raises(RunFolderError):
        load(made.folder)
    with pytest.raises(Unreadable):
        read_folder(made.folder)


@pytest.mark.parametrize("chain", [[0, 1.5], [0, "1"], [0, True], [0, 1.0], [0.0, 1], [False, 1]])
def test_chains_are_of_integers_for_both(chain: list[Any], tmp_path: Path) -> None:
    made = output_sets(tmp_path / "run")
    content = stored(made.folder)
    content["members"][0]["config"]["set"]["chains"] = [chain]
    (made.folder / "ensemble.json").write_text(json.dumps(seal(content)))
    with pytest.raises(RunFolderError):
        load(made.folder)
    with pytest.raises(Unreadable):
        compare(made.claim, made.folder)


def test_a_shield_that_acts_everywhere_is_not_one_that_does_not(tmp_path: Path) -> None:
    """It leaves alone what misses a rule by little, so certificates state it."""
    made = behind_a_shield(tmp_path / "run")
    compare(made.claim, made.folder)
    content = stored(made.folder)
    for guard in content["shield"]["guards"]:
        guard["everywhere"] = True
    (made.folder / "ensemble.json").write_text(json.dumps(seal(content)))
    assert load(made.folder).guards[0].everywhere
    assert not seen(made)


def test_certificates_of_shields_that_act_everywhere_say_so(tmp_path: Path) -> None:
    made = agents(tmp_path / "run")
    assert made.claim.everywhere
    content = stored(made.folder)
    for one in content["members"]:
        for guard in one["config"]["shield"]["guards"]:
            del guard["everywhere"]
    (made.folder / "ensemble.json").write_text(json.dumps(seal(content)))
    assert load(made.folder) is not None
    assert not seen(made)


def test_texts_that_are_words_for_floats_stay_texts(tmp_path: Path) -> None:
    names = ["NaN", "'NaN", "Infinity", "''-Infinity", "'", "nan"]
    content = {"names": names, "nested": [{"NaN": "NaN"}], "numbers": [math.inf, -math.inf]}
    files.write_json(tmp_path / "v.json", content)
    assert files.read_json(tmp_path / "v.json") == content


def test_description_of_a_table_takes_nothing_for_something_else(tmp_path: Path) -> None:
    made = networks_and_trees(tmp_path / "run")
    about = load(made.folder).about
    assert table_of(about).features == ("age", "NaN")
    for place in places({name: about[name] for name in ABOUT if name != "application"}):
        for value in others(at(about, place)):
            other = changed(about, place, value)
            if files.find_difference(other, about) is None:
                continue
            try:
                subject = table_of(other)
            except RunFolderError:
                continue
            read = describe_table(subject, scores=other["scores"])
            assert files.find_difference({name: other[name] for name in read}, read) is None
