"""Ratios to the optimum: cells, anchor, shields and certificate, against sampling and forgery."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.saved import load
from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.proofs.structure_certificates import encode_claim, seal_arrays
from cg4ai.records import Array
from cg4ai.routing import instance
from cg4ai.routing.network.description import describe_instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate.classical import find_oblivious
from cg4ai.routing.prove.flow_cells import FlowPrograms
from cg4ai.routing.prove.ratio import (
    RatioAnchor,
    RatioArchitecture,
    check_box,
    ratio_anchor,
    ratio_shield,
)
from cg4ai.routing.prove.ratio_proof import ratio_bytes
from cg4ai.routing.settings import Recipe, RouteSettings
from cg4ai.routing.train.joint import capacity_shield, joint_network
from cg4ai.routing.train.problem import capacity
from cg4ai.runs import files
from cg4ai.seeds import generator
from cg4ai_checker import Rejected, verdict
from cg4ai_checker.ratio import RatioVerdict
from cg4ai_checker.run_folder import compare
from raising import raises

HUGE = 2.0**33  # a power of two, so that nothing is rounded
Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def made() -> Instance:
    return instance("abilene", 4, 3, least=0.1)


@pytest.fixture(scope="module")
def anchor(made: Instance) -> RatioAnchor:
    return ratio_anchor(made, leaves=6)


@pytest.fixture(scope="module")
def router(made: Instance, anchor: RatioAnchor) -> Ensemble:
    """An untrained network, which is far from optimal, behind both shields."""
    network = joint_network(made, hidden=(8,), stages=1)
    bare = network.members(network.initialise(1, generator(1)))
    inner = ShieldedMembers(bare, ratio_shield(made, anchor))
    outer = capacity_shield(made, capacity(made, Recipe()), made.sample(50, 0))
    part = Part(ShieldedMembers(inner, outer), np.zeros(1, np.int64), np.ones(1))
    return Ensemble((part,), Layout.single(len(made.path_demand)))


def hostile(made: Instance) -> Array:
    """Random vectors and vertices."""
    random = np.random.default_rng(3)
    shares = np.concatenate([random.uniform(0.1, 1, (400, 4)), random.choice([0.1, 1.0], (100, 4))])
    return shares * made.demand_max


def ratios(made: Instance, vectors: Array, splits: Array) -> Array:
    return made.compute_utilisation(vectors, splits).max(axis=1) / made.find_optimal(vectors).mlu


def test_a_cell_is_no_worse_than_the_best_static_split(made: Instance) -> None:
    """Static splits are affine flows, so the least ratio of these is at most theirs."""
    cell = FlowPrograms(made).solve_cell(np.full(4, 0.1), np.ones(4))
    assert 1 <= cell.ratio <= find_oblivious(made, made.region).level + 2e-3
    vectors = hostile(made) / made.demand_max
    flows = vectors @ cell.slope.T + cell.offset
    assert flows.min() >= -1e-7
    totals = np.stack([flows[:, block].sum(1) for block in made.blocks], 1)
    assert totals == pytest.approx(vectors, abs=1e-8)


def test_the_anchor_keeps_its_ratio_and_cells_lower_it(made: Instance, anchor: RatioAnchor) -> None:
    vectors = hostile(made)
    splits = anchor.members.outputs(torch.as_tensor(vectors))[0].numpy()
    assert made.compute_unrouted(splits) < 1e-12
    assert ratios(made, vectors, splits).max() <= anchor.ratio
    assert anchor.ratio < anchor.whole < find_oblivious(made).level
    assert anchor.leaves == 6


def test_a_target_ends_the_cutting(made: Instance, anchor: RatioAnchor) -> None:
    reached = ratio_anchor(made, target=anchor.whole, leaves=50)
    assert reached.leaves == 1
    assert reached.ratio <= anchor.whole


def test_any_network_behind_the_shields_keeps_ratio_and_capacities(
    made: Instance, anchor: RatioAnchor, router: Ensemble
) -> None:
    vectors = hostile(made)
    bare = router.parts[0].members
    assert isinstance(bare, ShieldedMembers)
    assert isinstance(bare.inner, ShieldedMembers)
    alone = bare.inner.inner.outputs(torch.as_tensor(vectors))[0].numpy()
    assert ratios(made, vectors, alone).max() > anchor.ratio  # else nothing is shown
    splits = np.asarray(router.predict(vectors))
    assert ratios(made, vectors, splits).max() <= anchor.ratio + 1e-9
    assert made.compute_utilisation(vectors, splits).max() <= 1 + 1e-9
    assert made.compute_unrouted(splits) < 1e-9


def test_the_capacity_shield_does_not_undo_the_ratio(made: Instance, anchor: RatioAnchor) -> None:
    """Near the corner, with an inner answer that overloads links and is within the ratio."""
    outer = capacity_shield(made, capacity(made, Recipe()), made.sample(50, 0))
    random = np.random.default_rng(5)
    vectors = random.uniform(0.85, 1, (500, 4)) * made.demand_max
    splits = anchor.members.outputs(torch.as_tensor(vectors))[0]
    assert made.compute_utilisation(vectors, splits.numpy()).max() > 1
    moved = outer.repair_outputs(torch.as_tensor(vectors), splits).numpy()
    assert made.compute_utilisation(vectors, moved).max() <= 1 + 1e-9
    assert ratios(made, vectors, moved).max() <= anchor.ratio + 1e-9


@pytest.fixture(scope="module")
def arrays(made: Instance, router: Ensemble, anchor: RatioAnchor) -> Arrays:
    data = ratio_bytes(made, router, anchor)
    with np.load(io.BytesIO(data.partition(b"\n")[2])) as stored:
        return {name: stored[name] for name in stored.files}


def test_the_checker_accepts_and_says_what_is_proven(arrays: Arrays, anchor: RatioAnchor) -> None:
    found = verdict(seal_arrays(arrays))
    assert isinstance(found, RatioVerdict)
    assert found.claim.ratio == anchor.ratio
    assert found.cells == 6
    assert f"above {anchor.ratio!r} times" in str(found)


def changed(arrays: Arrays, name: str, change: Any) -> bytes:
    return seal_arrays({**arrays, name: np.asarray(change(arrays[name].copy()))})


def put(place: Any, value: Any) -> Any:
    def change(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("ratio", lambda a: a - 0.02, "not-proven"),
        ("ratio", lambda a: a * 0 + 0.9, "range"),
        ("rule_prices", lambda a: a * 1.001, "not-proven"),
        ("arc_prices", lambda a: a * [[-1.0]], "range"),
        ("choice", lambda a: a * 0, "not-proven"),
        ("choice", put((0, 0), -1), "range"),
        ("lower", lambda a: a * 0.5, "not-proven"),
        ("lower", lambda a: a * 0, "not-finite"),
        ("upper", lambda a: a * 1.5, "not-proven"),
        ("offset", lambda a: a + 0.1, "not-proven"),
        ("offset", lambda a: a - 0.1, "not-proven"),
        ("slope", lambda a: a * 0.9, "not-proven"),
        ("unit", lambda a: a * 0.9, "not-proven"),
        ("threshold", lambda a: a * 1.5, "not-proven"),
        ("left", put((0,), 0), "rejected"),
        ("capacity", put((0,), 0.0), "not-finite"),
        ("incidence", put((0, 0), 0.5), "rejected"),
        ("path_demand", lambda a: a * 0, "rejected"),
        ("safe_split", lambda a: a * 0.5, "rejected"),
        ("slope", put((5, 0, 0), np.nan), "not-finite"),
    ],
)
def test_forged_certificates_are_rejected(
    arrays: Arrays, name: str, change: Any, code: str
) -> None:
    with raises(Rejected, code):
        verdict(changed(arrays, name, change))


def test_a_safe_split_that_overloads_is_rejected(made: Instance, arrays: Arrays) -> None:
    first = np.zeros(len(made.path_demand))
    first[[block[0] for block in made.blocks]] = 1.0
    with raises(Rejected, "not-proven"):
        verdict(seal_arrays({**arrays, "safe_split": first}))


def test_missing_and_further_arrays_are_rejected(arrays: Arrays) -> None:
    with raises(Rejected, "rejected", "missing"):
        verdict(seal_arrays({name: array for name, array in arrays.items() if name != "unit"}))
    with raises(Rejected, "rejected"):
        verdict(seal_arrays({**arrays, "more": np.zeros(1)}))
    with raises(Rejected, "type"):
        verdict(seal_arrays({**arrays, "claim": encode_claim({"kind": "ratio"})}))


def test_sets_without_a_ratio_are_refused(made: Instance) -> None:
    with raises(InvalidInput, "unsupported"):
        check_box(instance("abilene", 3, 3))
    with raises(InvalidInput, "unsupported"):
        check_box(instance("abilene", 3, 3, least=0.1, budget=0.8))
    wide = replace(made, path_demand=np.repeat(made.path_demand, 300))
    # what is counted is said: 4 demands with 900 paths each are not "4 x 900"
    with raises(InvalidInput, "memory"):
        check_box(wide)


@pytest.mark.parametrize(
    "given",
    [
        {"ratio": 1.2},
        {"ratio": 1.2, "min_demand": 0.1, "guarantee": "certified"},
        {"ratio": 1.2, "min_demand": 0.1, "members": "tree"},
        {"ratio": 1.2, "min_demand": 0.1, "hose": 0.9},
        {"ratio_leaves": 5},
        {"ratio": 0.9, "min_demand": 0.1},
    ],
)
def test_settings_that_do_not_go_together_are_refused(given: dict[str, Any]) -> None:
    with raises(InvalidSettings, "invalid-settings", "ratio"):
        RouteSettings(network="abilene", **given)


@pytest.fixture(scope="module")
def folder(made: Instance, router: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Path:
    router.about.update({"application": "routing", **describe_instance(made)})
    folder = tmp_path_factory.mktemp("router")
    router.save(folder)
    return folder


def test_the_router_that_is_shipped_is_compared(arrays: Arrays, folder: Path) -> None:
    found = verdict(seal_arrays(arrays))
    assert isinstance(found, RatioVerdict)
    assert "two shields" not in "".join(compare(found.claim, folder))
    for name, code in (
        ("safe_split", "rejected"),
        ("rule_prices", "altered"),
        ("slope", "altered"),
        ("capacity", "altered"),
        ("incidence", "altered"),
    ):
        claim = verdict(seal_arrays(arrays)).claim
        setattr(claim, name, getattr(claim, name) * 0.5)
        with raises(Rejected, code):
            compare(claim, folder)


def test_a_router_without_the_shield_of_the_ratio_is_rejected(
    made: Instance, router: Ensemble, arrays: Arrays, tmp_path: Path
) -> None:
    outer = router.parts[0].members
    assert isinstance(outer, ShieldedMembers)
    assert isinstance(outer.inner, ShieldedMembers)
    bare = ShieldedMembers(outer.inner.inner, outer.shield)
    single = Ensemble((replace(router.parts[0], members=bare),), router.layout)
    single.about.update({"application": "routing", **describe_instance(made)})
    single.save(tmp_path)
    with raises(Rejected, "rejected", "shields"):
        compare(verdict(seal_arrays(arrays)).claim, tmp_path)


def tampered(folder: Path, to: Path, change: Any) -> Path:
    """The saved router with other content and arrays, and fitting seals."""
    content = files.read_json(folder / "ensemble.json")
    arrays = dict(files.read_arrays(folder / "members.safetensors"))
    change(content, arrays)
    content["arrays"] = files.write_arrays(to / "members.safetensors", arrays)
    files.write_json(to / "ensemble.json", content)
    return to


def rotated(content: Any, arrays: Arrays) -> None:
    """The paths of each demand change places."""
    blocks = np.arange(12).reshape(4, 3)
    content["layout"] = [np.roll(blocks, 1, axis=1).ravel().tolist()]


def sends_nothing(content: Any, arrays: Arrays) -> None:
    inner = content["members"][0]["config"]["inner"]["config"]
    inner["inner"] = {"kind": "constant", "config": {"input_size": 4}}
    for name in [name for name in arrays if name.startswith("0.inner.inner.")]:
        del arrays[name]
    arrays["0.inner.inner.values"] = np.zeros((1, 12))


def misnamed(content: Any, arrays: Arrays) -> None:
    """Volumes are given by names: those of two demands would go to each other's paths."""
    names = content["about"]["demands"]
    names[0], names[1] = names[1], names[0]


def another_shield(content: Any, arrays: Arrays) -> None:
    """Around all of it, one that closes all links but those of each demand's first path."""
    state = content["members"][0]["config"]["shield"]
    own = {name: content[name] for name in ("about", "layout")}
    anchor = {**own, "members": [state["anchor"]], "blocks": [[0]], "weights": [[1.0]]}
    content["shield"] = {"anchor": anchor, "guards": state["guards"]}
    for name in [name for name in arrays if name.startswith("0.shield.guard.0.")]:
        arrays[name.removeprefix("0.shield.")] = arrays[name]
    first = np.tile([1.0, 0.0, 0.0], 4)
    upper = np.array(state["guards"][0]["region"]["upper"])
    rule, output, source, value = (
        arrays[f"guard.0.{name}"] for name in ("rule", "output", "input", "value")
    )
    most = np.bincount(rule, value * first[output] * upper[source])
    arrays["guard.0.limit"], arrays["anchor.0.values"] = most * (1 + 1e-9), first[None]


def named_twice(content: Any, arrays: Arrays) -> None:
    """A slope of the bound that is named again before: both count, the last would be compared."""
    for name in ("rule", "output", "input", "value"):
        own = arrays[f"0.inner.shield.guard.0.{name}"]
        arrays[f"0.inner.shield.guard.0.{name}"] = np.concatenate([own[:1], own])


def acts_everywhere(content: Any, arrays: Arrays) -> None:
    """A shield that leaves alone what is nearly as good as its flows, whatever the ratio of it.

    Loads are next to nothing here, as capacities are huge: in both shields and in the network.
    """
    inner = content["members"][0]["config"]["inner"]["config"]
    inner["shield"]["guards"][0]["everywhere"] = True
    about = content["about"]
    about["capacity"] = [HUGE * one for one in about["capacity"]]
    for shield in ("0.shield", "0.inner.shield"):
        for name in ("value", "prices"):
            if f"{shield}.guard.0.{name}" in arrays:
                arrays[f"{shield}.guard.0.{name}"] = arrays[f"{shield}.guard.0.{name}"] / HUGE


def test_a_shield_that_leaves_alone_what_is_nearly_as_good_is_rejected(
    made: Instance, arrays: Arrays, folder: Path, tmp_path: Path
) -> None:
    prices = arrays["rule_prices"] / HUGE
    data = seal_arrays({**arrays, "capacity": arrays["capacity"] * HUGE, "rule_prices": prices})
    forged = tampered(folder, tmp_path, acts_everywhere)
    vectors = hostile(made)
    splits = np.asarray(load(forged).predict(vectors))
    found = verdict(data)
    assert isinstance(found, RatioVerdict)
    assert ratios(made, vectors, splits).max() > found.claim.ratio + 1e-6  # else nothing is shown
    with raises(Rejected, "rejected", "everywhere"):
        compare(found.claim, forged)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (rotated, "rejected"),
        (sends_nothing, "rejected"),
        (another_shield, "rejected"),
        (named_twice, "altered"),
        (misnamed, "altered"),
    ],
)
def test_what_breaks_the_ratio_in_a_folder_is_rejected(
    made: Instance, arrays: Arrays, folder: Path, tmp_path: Path, change: Any, code: str
) -> None:
    found = verdict(seal_arrays(arrays))
    assert isinstance(found, RatioVerdict)
    claim = found.claim
    compare(claim, tampered(folder, tmp_path, lambda content, stored: None))
    forged = tampered(folder, tmp_path, change)
    if change not in (named_twice, misnamed):  # one is not loaded, one is right but for its names
        vectors = hostile(made)
        splits = np.asarray(load(forged).predict(vectors))
        broken = ratios(made, vectors, splits).max() > claim.ratio + 1e-6
        assert broken or made.compute_unrouted(splits) > 0.1  # else nothing is shown
    with raises(Rejected, code):
        compare(claim, forged)


def test_networks_train_without_the_shield_and_stand_behind_it(
    made: Instance, anchor: RatioAnchor
) -> None:
    network = joint_network(made, hidden=(8,), stages=1)
    architecture = RatioArchitecture(network, ratio_shield(made, anchor))
    parameters = architecture.initialise(1, generator(1))
    vectors = torch.as_tensor(hostile(made))
    bare = network.forward(parameters, vectors.float())
    assert torch.equal(architecture.forward(parameters, vectors.float()), bare)
    splits = architecture.members(parameters).outputs(vectors)[0].numpy()
    assert ratios(made, vectors.numpy(), splits).max() <= anchor.ratio + 1e-9
