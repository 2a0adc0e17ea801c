"""Classes of demands: what is carried, beside programs of scipy, and what is promised of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.records import Array
from cg4ai.routing import instance
from cg4ai.routing.demands.priorities import carry_priorities, with_priorities
from cg4ai.routing.network.description import Router, describe_instance, restore_instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate.carried import CarryingProgram, measure_classes
from cg4ai.routing.settings import RouteSettings
from raising import raises

SIZE = 10


def write(folder: Path, lines: list[str], header: str = "source,target,priority") -> Path:
    (folder / "classes.csv").write_text("\n".join([header, *lines]))
    return folder / "classes.csv"


@pytest.fixture(scope="module")
def plain() -> Instance:
    return instance("polska", SIZE, 3)


@pytest.fixture(scope="module")
def made(plain: Instance, tmp_path_factory: pytest.TempPathFactory) -> Instance:
    """Three classes: two demands of priority 1, three of 4, and the others after them."""
    lines = [f"{s},{t},{1 if at < 2 else 4}" for at, (s, t) in enumerate(plain.ends[:5])]
    return with_priorities(plain, write(tmp_path_factory.mktemp("classes"), lines))


def best(made: Instance, vector: Array) -> tuple[list[float], list[float]]:
    """Largest common share and traffic of each class, the one after the other, in plain units."""
    paths, demands, demand = len(made.path_demand), len(vector), made.path_demand
    member = np.zeros((demands, paths))
    member[demand, np.arange(paths)] = 1
    upper = [np.hstack([(made.incidence / made.capacity).T, np.zeros((len(made.arcs), 1))])]
    upper += [np.hstack([member, np.zeros((demands, 1))])]
    limits = [np.ones(len(made.arcs)), vector]
    shares, traffic = [], []
    for one in sorted(set(made.priorities or ())):
        chosen = np.array(made.priorities) == one
        common = np.hstack([-member, vector[:, None]])[chosen]
        last = np.eye(1, paths + 1, paths)
        found = linprog(
            -last[0], np.vstack([*upper, common]), np.concatenate([*limits, np.zeros(chosen.sum())])
        )
        shares.append(min(1.0, found.x[-1]))
        at_least = shares[-1] * (1 - 1e-9) * vector[chosen]
        upper.append(np.hstack([-member, np.zeros((demands, 1))])[chosen])
        limits.append(-at_least)
        total = np.append(member[chosen].sum(axis=0), 0.0)
        found = linprog(-total, np.vstack(upper), np.concatenate(limits))
        traffic.append(-found.fun)
        upper.append(-total[None])
        limits.append(np.array([-traffic[-1] * (1 - 1e-9)]))
    return shares, traffic


@pytest.mark.parametrize("seed", range(3))
def test_classes_are_carried_one_after_the_other(made: Instance, seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = made.demand_max * random.uniform(0, 6, (5, SIZE))
    vectors[4, :4] *= 1e8  # far beyond all there is
    found = CarryingProgram(made).solve(vectors, np.tile(made.robust.split, (5, 1)))
    carried = vectors * found.shares
    assert made.compute_utilisation(carried, found.splits).max() <= 1 + 1e-6
    assert made.compute_unrouted(found.splits) <= 1e-9
    classes = np.array(made.priorities)
    for row, vector in enumerate(vectors[:4]):
        shares, traffic = best(made, vector)
        for one, share, most in zip([1, 4, 5], shares, traffic, strict=True):
            own = classes == one
            assert found.shares[row, own].min() >= share - 1e-6
            assert carried[row, own].sum() == pytest.approx(most, rel=1e-5)


def test_a_class_is_carried_in_full_up_to_what_is_said(made: Instance) -> None:
    """Whatever the classes after it are; and at the corner no further."""
    program, classes = CarryingProgram(made), np.array(made.priorities)
    found = measure_classes(made)
    assert [one["priority"] for one in found] == [1, 4, 5]
    assert [one["demands"] for one in found] == [2, 3, 5]
    factors = [one["fits_up_to"] for one in found]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] == pytest.approx(1 / 0.99, rel=1e-6)
    for one in found[:2]:
        first = classes <= one["priority"]
        for more, full in ((1.0, True), (1.05, False)):
            vector = made.demand_max * np.where(first, more * one["fits_up_to"], 50.0)
            shares = program.solve(vector[None], made.robust.split[None]).shares[0, first]
            assert (shares.min() >= 1) == full


def test_answers_say_what_is_carried(made: Instance) -> None:
    factor = measure_classes(made)[0]["fits_up_to"]
    first = np.array(made.priorities) == 1
    much = made.demand_max * np.where(first, factor, 3.0)
    vectors = np.stack([0.5 * made.demand_max, much])
    router = Router(made)
    splits = np.tile(made.robust.split, (2, 1))
    found = router.improve_answers(vectors, splits, fallback=1.0)
    assert found.overloaded.tolist() == [False, True]
    assert found.carried["carried, priority 1"].tolist() == [1.0, 1.0]
    assert found.carried["carried, priority 5"][0] == 1.0
    assert found.carried["carried, priority 5"][1] < 1.0
    high = much * first
    assert made.compute_utilisation(high[None], found.splits[1:]).max() <= 1 + 1e-6
    name = made.demand_names[0]
    assert found.carried_each[f"carried {name}"].tolist() == [1.0, 1.0]
    assert not router.improve_answers(vectors, splits).carried  # nothing is solved
    held = router.limit_changes(vectors, found.splits, None, churn=0.0, known=[found])
    assert np.array_equal(held.outputs, found.splits)  # what is carried goes before the bound


def test_a_run_keeps_its_classes(made: Instance, plain: Instance) -> None:
    described = describe_instance(made)
    assert restore_instance(described).priorities == made.priorities
    assert "priorities" not in describe_instance(plain)
    for wrong in ([1], ["1"] * SIZE, [0] * SIZE):
        with pytest.raises(OSError, match="priorities"):
            restore_instance({**described, "priorities": wrong})
    fewer = instance("polska", SIZE - 4, 3)
    assert carry_priorities(fewer, made).priorities == (made.priorities or ())[: SIZE - 4]
    assert carry_priorities(plain, fewer) is plain
    more = carry_priorities(instance("polska", SIZE + 1, 3), made)
    assert more.priorities == (*(made.priorities or ()), 5)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["Nowhere,Gdansk,1"], "unknown-name"),
        (["{0},0"], "range"),
        (["{0},first"], "range"),
        (["{0},1", "{0},2"], "duplicate"),
        (["Gdansk,Gdansk,1"], "empty"),
    ],
)
def test_files_that_cannot_be_right_are_refused(
    plain: Instance, tmp_path: Path, lines: list[str], code: str
) -> None:
    pair = ",".join(plain.ends[0])
    with raises(InvalidInput, code):
        with_priorities(plain, write(tmp_path, [line.format(pair) for line in lines]))


def test_priorities_need_a_fallback_for_all_demands() -> None:
    asked = {"network": "n", "priority_file": Path("classes.csv")}
    RouteSettings.from_mapping(asked)
    for further in (
        {"fallback": None},
        {"agent_scope": "own"},
        {"objective": "cost"},
        {"granularity": 8},
        {"history": 3, "traffic": Path("t.npz")},
    ):
        with pytest.raises(InvalidSettings, match="priority_file"):
            RouteSettings.from_mapping({**asked, **further})
