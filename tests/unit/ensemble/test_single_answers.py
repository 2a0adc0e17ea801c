"""One input answered by NumPy against the same input answered as a batch is, for all members."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor
from torch import nn

from cg4ai.data.sparse import LEAST_ENTRIES, plan_product
from cg4ai.ensemble.ensemble import FEW, Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import (
    ArrangedMembers,
    CompletedMembers,
    ConstantMembers,
    FeedbackArchitecture,
    FlowMembers,
    Loads,
    Members,
    ModuleArchitecture,
    NestedMembers,
    NetworkArchitecture,
    Shield,
    ShieldedMembers,
    SideBySideArchitecture,
    from_sklearn,
)
from cg4ai.members.mixture import Part
from cg4ai.members.single import SoftmaxGroups
from cg4ai.records import Array
from cg4ai.rules import (
    AffineBound,
    AffineCoefficients,
    AffineRules,
    Ball,
    Box,
    Guard,
    Largest,
    Linear,
    Polytope,
    Quadratic,
    Region,
    SharedRules,
)
from cg4ai.rules.equality import Completion
from cg4ai.rules.guards import guard_of
from cg4ai.rules.output_sets import OutputSet
from raising import raises

INPUTS, OUTPUTS = 3, 4
BOX = Box(np.zeros(INPUTS), np.full(INPUTS, 2.0))
CLOSE = 1e-12  # of the size of what is compared: rounding, with a thousand times the room
GROUPS = [(2, 2), (3, 1), (4,), (1, 1, 1, 1)]
SHIELDS = [
    "plain",
    "tilted",
    "pieces",
    "moving",
    "parts",
    "everywhere",
    "shared",
    "ball",
    "polytope",
]
KINDS = [
    *(
        "linear",
        "gelu",
        "tanh",
        "affine",
        "softmax",
        "grouped",
        "feedback",
        "side by side",
        "flows",
    ),
    *("constant", "forest", "completed", "arranged", "nested", "shielded", "twice"),
]


def network(seed: int, count: int, **options: Any) -> Members:
    rng = np.random.default_rng(seed)
    given = {"hidden": [(), (6,), (5, 4)][seed % 3], "skip": seed % 2 == 1 and seed % 3 > 0}
    units = {"shift": rng.normal(size=INPUTS), "scale": rng.uniform(0.1, 10, INPUTS)}
    made = NetworkArchitecture(INPUTS, OUTPUTS, **{**given, **units, **options})
    start = made.initialise(count, torch.Generator().manual_seed(seed))
    size = [0.3, 3.0, 300.0][seed % 3]
    return made.members({name: size * value for name, value in start.items()})


def feedback(seed: int, count: int, groups: tuple[int, ...] = (3, 1)) -> Members:
    rng = np.random.default_rng(seed)
    made = NetworkArchitecture(INPUTS, OUTPUTS, hidden=(5, 4), output="grouped", groups=groups)
    loads = Loads(rng.uniform(0, 1, (5, OUTPUTS)), rng.integers(0, INPUTS, OUTPUTS))
    own = FeedbackArchitecture(made, loads, 2, first=rng.normal(size=(OUTPUTS, 5)))
    return own.members(own.initialise(count, torch.Generator().manual_seed(seed)))


def flows(seed: int, count: int) -> Members:
    rng = np.random.default_rng(seed)
    nodes = {"left": [1, 1, 2], "right": [2, 1, 2], "feature": [seed % 3, 0, 0]}
    return FlowMembers(
        **{name: np.tile(value, (count, 1)) for name, value in nodes.items()},
        threshold=np.tile([1.0, 0.0, 0.0], (count, 1)),
        slope=rng.normal(size=(count, 3, OUTPUTS, INPUTS)),
        offset=rng.normal(size=(count, 3, OUTPUTS)),
        group=[0, 0, 1, 1],
    )


def forest(seed: int, count: int) -> Members:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 2, (60, INPUTS)), rng.normal(size=(60, OUTPUTS))
    model = RandomForestRegressor(n_estimators=5, max_depth=4, random_state=seed).fit(x, y)
    made = from_sklearn(model)
    return type(made).concatenate([made] * count)


def side_by_side(seed: int, count: int) -> Members:
    made = NetworkArchitecture(INPUTS, 2, hidden=(4,), skip=True, output="softmax")
    seen = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 1]], bool)
    own = SideBySideArchitecture(made, seen, (2, 1, 1))
    return own.members(own.initialise(count, torch.Generator().manual_seed(seed)))


def shield(seed: int, kind: str = "plain") -> Shield:
    """Rules on sums of outputs that random members break here and there, and an anchor."""
    rng = np.random.default_rng(seed)
    a, anchor = rng.normal(size=(3, OUTPUTS)), rng.uniform(0.2, 0.3, OUTPUTS)
    if kind == "parts":  # rules that share no output
        a = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0], [-1.0, 0.0, 0.0, 0.0]])
    bound = a @ anchor + rng.uniform(0.1, 0.6, 3)
    coefficients: Any = a
    if kind == "moving":
        coefficients = AffineCoefficients.dense(a, 0.02 * rng.normal(size=(3, OUTPUTS, INPUTS)))
    limit: Any = bound
    if kind in ("tilted", "pieces"):
        limit = AffineBound(bound, rng.uniform(0, 0.2, (3, INPUTS)))
    if kind == "pieces":
        limit = Largest([limit, AffineBound(bound + 0.1, np.zeros((3, INPUTS)))])
    regions: dict[str, Region] = {
        "ball": Ball(np.ones(INPUTS), 0.9),
        "polytope": Polytope(BOX, [[1.0, 1, 1]], [4.0]),
    }
    region = regions.get(kind, BOX)
    rule = Linear(region, coefficients, limit, "<=", name=kind)
    rule.check(INPUTS, OUTPUTS)
    guard = guard_of(rule, OUTPUTS)
    if kind == "everywhere":
        guard = Guard(guard.name, guard.region, guard.rules, everywhere=True)
    if kind == "shared":
        values = AffineCoefficients.dense(a, np.zeros((3, OUTPUTS, INPUTS)))
        rules = AffineRules.of(values, np.zeros(3), "<=", input_size=INPUTS)
        guard = Guard(kind, region, SharedRules(rules, rng.uniform(0.3, 1, (2, INPUTS))))
    return Shield(ConstantMembers(anchor[None], INPUTS), (guard,))


def members(kind: str, seed: int, count: int) -> Members:
    """Random members of a kind; those of layers are around networks or trees."""
    rng = np.random.default_rng(seed)
    if kind in ("gelu", "tanh"):
        return network(seed, count, activation=kind)
    if kind == "softmax":
        return network(seed, count, output="softmax")
    if kind == "grouped":
        return network(seed, count, output="grouped", groups=GROUPS[seed % len(GROUPS)])
    if kind == "affine":
        return network(seed, count, hidden=(), skip=False)
    if kind == "constant":
        return ConstantMembers(rng.normal(size=(count, OUTPUTS)), INPUTS)
    if kind == "completed":
        own = NetworkArchitecture(INPUTS, 2, hidden=(3,))
        start = own.initialise(count, torch.Generator().manual_seed(seed))
        parts = [rng.normal(size=(OUTPUTS, *more)) for more in ((), (INPUTS,), (2,))]
        return CompletedMembers(own.members(start), Completion(*parts))
    if kind == "arranged":
        ends = np.full(OUTPUTS, -0.3), np.full(OUTPUTS, 0.4)
        return ArrangedMembers(network(seed, count), OutputSet(*ends, ((0, 2), (1, 3))))
    if kind == "nested":
        return NestedMembers(network(seed, 2 * count, output="softmax"), seed % OUTPUTS)
    if kind == "shielded":
        return ShieldedMembers(network(seed, count), shield(seed, SHIELDS[seed % len(SHIELDS)]))
    if kind == "twice":
        return ShieldedMembers(
            ShieldedMembers(feedback(seed, count), shield(seed, "shared")), shield(seed + 1)
        )
    plain: Any = {
        "linear": network,
        "feedback": feedback,
        "flows": flows,
        "forest": forest,
        "side by side": side_by_side,
    }
    made: Members = plain[kind](seed, count)
    return made


def part(kind: str, seed: int, count: int, share: float, blocks: int = 1) -> Part:
    """So much of every block; of several blocks each needs a member."""
    own = np.arange(count) % blocks
    weights = np.random.default_rng(seed).uniform(0.1, 1, count)
    return Part(members(kind, seed, count), own, share * weights / np.bincount(own, weights)[own])


@st.composite
def ensembles(draw: Any) -> Ensemble:
    """One or two stacks in one block or in two, behind a shield of the whole or not."""
    seed = draw(st.integers(0, 10_000))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))
    blocks = draw(st.sampled_from([1, 1, 2]))
    sizes = [draw(st.sampled_from([1, 3])) + blocks - 1 for _ in kinds]
    parts = tuple(
        part(kind, seed + at, size, 1 / len(kinds), blocks)
        for at, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    )
    single = draw(st.sampled_from([Layout.single(OUTPUTS), Layout((np.array([3, 1, 0, 2]),))]))
    layout = single if blocks == 1 else Layout((np.array([0, 3, 4]), np.array([1, 2])))
    made = Ensemble(parts, layout)
    if layout.output_size == OUTPUTS and draw(st.booleans()):
        rule = Linear(BOX, [[1.0, 1.0, -1.0, 0.0]], 0.3, "<=", name="whole")
        made = made.apply_shield(np.zeros(OUTPUTS), rule)
    return made


def draw_inputs(seed: int) -> Array:
    """Inside the box, at its corners, outside of it, and far away."""
    rng = np.random.default_rng(seed)
    near = np.concatenate([rng.uniform(0, 2, (6, INPUTS)), [[0.0] * 3, [2.0] * 3, [0.0, 2, 0]]])
    return np.concatenate([near, rng.uniform(-3, 5, (3, INPUTS)), rng.normal(size=(2, 3)) * 1e6])


def as_batch(ensemble: Ensemble, x: Array) -> tuple[Array, Array]:
    """The outputs and theta that torch gives."""
    with torch.no_grad():
        inputs = torch.as_tensor(x)
        return ensemble.outputs(inputs).numpy(), ensemble.theta(inputs).numpy()


@settings(max_examples=150, deadline=None)
@given(ensembles(), st.integers(0, 10_000))
def test_an_input_alone_is_answered_as_in_a_batch(ensemble: Ensemble, seed: int) -> None:
    assert ensemble.answers_singly
    inputs = draw_inputs(seed)
    wanted, moved = as_batch(ensemble, inputs)
    with torch.no_grad():  # what outputs are sums of, before layers move them
        inner = [one.members.innermost() for one in ensemble.used]
        sizes = [one.outputs(torch.as_tensor(inputs)).abs().amax((0, 2)) for one in inner]
    for number, x in enumerate(inputs):
        outputs, theta = ensemble.evaluate(x[None])
        size = max(1.0, *(float(one[number]) for one in sizes))
        assert np.abs(outputs[0] - wanted[number]).max() <= CLOSE * size
        assert abs(theta[0] - moved[number]) <= CLOSE * size
        np.testing.assert_array_equal(ensemble.predict(x[None], outside="ignore"), outputs)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_answered_singly_and_is_near_its_batch(kind: str) -> None:
    for count in (1, 3):
        ensemble = Ensemble((part(kind, 4, count, 1.0),), Layout.single(OUTPUTS))
        assert ensemble.answers_singly
        inputs = draw_inputs(0)[:9]
        alone = np.concatenate([ensemble.predict(x[None], outside="ignore") for x in inputs])
        np.testing.assert_allclose(alone, as_batch(ensemble, inputs)[0], atol=1e-10, rtol=1e-10)


def exact_slack(a: Array, bound: Array, y: Array) -> Fraction:
    rows = [
        Fraction(float(limit))
        - sum(Fraction(float(c)) * Fraction(float(v)) for c, v in zip(row, y, strict=True))
        for row, limit in zip(a, bound, strict=True)
    ]
    return min(rows)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1e-6, 1.0, 1e6]))
def test_rules_hold_in_the_numbers_that_come_out(seed: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    a, anchor = rng.normal(size=(3, OUTPUTS)), unit * rng.normal(size=OUTPUTS)
    bound = a @ anchor + unit * rng.uniform(0.1, 1, 3)
    rule = Linear(BOX, a, bound, "<=", name="rows")
    rule.check(INPUTS, OUTPUTS)
    around = Shield(ConstantMembers(anchor[None], INPUTS), (guard_of(rule, OUTPUTS),))
    inner = network(seed, 3, output_scale=np.full(OUTPUTS, 3 * unit))
    stack = ShieldedMembers(inner, around)
    ensemble = Ensemble(
        (Part(stack, np.zeros(3, np.int64), rng.dirichlet(np.ones(3))),), Layout.single(OUTPUTS)
    )
    for x in draw_inputs(seed)[:9]:
        (y,), (theta,) = ensemble.evaluate(x[None])
        event("the shield acts" if theta > 0 else "nothing is moved")
        # what is rounded: the sums of the rule, of outputs as they were before the shield
        largest = float(inner.outputs(torch.as_tensor(x[None])).abs().max())
        size = float((np.abs(a).sum(1) * max(largest, np.abs(y).max()) + np.abs(bound)).max())
        assert exact_slack(a, bound, y) >= -4e-16 * OUTPUTS * size


def test_few_inputs_are_answered_as_each_alone_and_more_as_a_batch() -> None:
    ensemble = Ensemble((part("feedback", 1, 2, 1.0),), Layout.single(OUTPUTS))
    inputs = draw_inputs(3)
    alone = np.concatenate([ensemble.predict(x[None]) for x in inputs])
    np.testing.assert_array_equal(ensemble.predict(inputs[:FEW]), alone[:FEW])
    np.testing.assert_array_equal(ensemble.predict(inputs), as_batch(ensemble, inputs)[0])
    tensor = ensemble.predict(torch.as_tensor(inputs[:1]))
    assert torch.equal(tensor, torch.as_tensor(alone[:1]))


@pytest.mark.parametrize("kind", KINDS)
def test_results_have_memory_of_their_own(kind: str) -> None:
    """Whoever writes into an answer changes neither the next one nor the members."""
    ensemble = Ensemble((part(kind, 5, 1, 1.0),), Layout.single(OUTPUTS))
    x = np.full((1, INPUTS), 0.7)
    first = ensemble.predict(x)
    kept = first.copy()
    second = ensemble.predict(x)
    assert not np.shares_memory(first, second)
    first[:] = np.nan
    np.testing.assert_array_equal(second, kept)
    np.testing.assert_array_equal(ensemble.predict(x), kept)
    np.testing.assert_array_equal(x, np.full((1, INPUTS), 0.7))


def test_threads_get_the_answers_that_one_gets() -> None:
    ensemble = Ensemble((part("twice", 2, 3, 0.5), part("gelu", 3, 3, 0.5)), Layout.single(OUTPUTS))
    inputs = np.random.default_rng(0).uniform(0, 2, (400, 1, INPUTS))
    with ThreadPoolExecutor(8) as pool:  # the first calls come together, too
        found = list(pool.map(ensemble.predict, inputs))
    for x, y in zip(inputs, found, strict=True):
        np.testing.assert_array_equal(y, ensemble.predict(x))


def test_copies_and_pickles_answer_as_before() -> None:
    ensemble = Ensemble((part("shielded", 6, 3, 1.0),), Layout.single(OUTPUTS))
    x = np.full((1, INPUTS), 0.4)
    known = ensemble.predict(x)
    for made in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        again = made(ensemble)
        assert again.answers_singly
        np.testing.assert_array_equal(again.predict(x), known)


def test_numbers_that_may_change_are_read_at_every_call() -> None:
    ensemble = Ensemble((part("constant", 0, 1, 1.0),), Layout.single(OUTPUTS))
    x = np.zeros((1, INPUTS))
    ensemble.predict(x)
    tensors = {name: one.clone() for name, one in ensemble.tensors().items()}
    lent = ensemble.with_tensors(tensors)
    assert not lent.answers_singly
    tensors["members.0.values"] += 1.0
    np.testing.assert_allclose(lent.predict(x), ensemble.predict(x) + 1.0)


def test_missing_values_are_answered_as_a_batch() -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random((60, INPUTS)) < 0.2, np.nan, rng.uniform(0, 2, (60, INPUTS)))
    model = RandomForestRegressor(n_estimators=5, random_state=0).fit(x, rng.normal(size=(60, 4)))
    stack = Part(from_sklearn(model), np.zeros(1, np.int64), np.ones(1))
    ensemble = Ensemble((stack,), Layout.single(OUTPUTS))
    assert ensemble.answers_singly
    assert ensemble.takes_missing
    wanted = as_batch(ensemble, x)[0]
    alone = np.concatenate([ensemble.predict(row[None]) for row in x])
    np.testing.assert_allclose(alone, wanted, atol=1e-12)


def quadratic() -> Members:
    rule = Quadratic(BOX, np.eye(OUTPUTS), 1.0, name="disc")
    rule.check(INPUTS, OUTPUTS)
    anchor = ConstantMembers(np.zeros((1, OUTPUTS)), INPUTS)
    return ShieldedMembers(network(1, 1), Shield(anchor, (guard_of(rule, OUTPUTS),)))


def module() -> Members:
    made = ModuleArchitecture(lambda: nn.Linear(INPUTS, OUTPUTS), INPUTS, OUTPUTS, "linear")
    return made.members(made.initialise(1, torch.Generator().manual_seed(0)))


def sharp() -> Members:
    made = feedback(0, 1)
    parameters = made.tensors()
    return made.with_tensors(
        {**parameters, "sharpness_0": torch.full_like(parameters["sharpness_0"], 9)}
    )


@pytest.mark.parametrize("made", [quadratic, module, sharp])
def test_what_has_no_such_way_is_answered_as_a_batch(made: Any) -> None:
    ensemble = Ensemble((Part(made(), np.zeros(1, np.int64), np.ones(1)),), Layout.single(OUTPUTS))
    assert not ensemble.answers_singly
    x = np.full((1, INPUTS), 0.3)
    np.testing.assert_array_equal(ensemble.predict(x), as_batch(ensemble, x)[0])


def test_groups_of_very_different_sizes_have_no_such_way() -> None:
    groups = (30, *[1] * 30)
    assert not SoftmaxGroups(groups).affordable
    made = NetworkArchitecture(INPUTS, 60, hidden=(), output="grouped", groups=groups)
    stack = made.members(made.initialise(1, torch.Generator()))
    assert stack.single() is None


def test_overflow_is_answered_as_a_batch_has_it() -> None:
    """Numbers beyond all ranges: no warning, and the same infinities and zeros."""
    for kind in ("linear", "feedback", "shielded"):
        ensemble = Ensemble((part(kind, 5, 1, 1.0),), Layout.single(OUTPUTS))
        x = np.full((1, INPUTS), 1e308)
        found = ensemble.predict(x, outside="ignore")
        np.testing.assert_array_equal(found, as_batch(ensemble, x)[0])


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["box", "ball", "polytope"]), st.integers(0, 10_000))
def test_one_input_is_near_a_region_as_in_a_batch(kind: str, seed: int) -> None:
    regions: dict[str, Region] = {
        "box": BOX,
        "ball": Ball(np.ones(3), 1.0),
        "polytope": Polytope(BOX, [[1.0] * 3], [3]),
    }
    region, rng = regions[kind], np.random.default_rng(seed)
    drawn = torch.as_tensor(rng.uniform(-1, 3, (5, INPUTS)))
    edge = region.project(drawn).numpy() + rng.choice([0, 1e-13, -1e-13, 1e-9], (5, 1))
    inputs = np.concatenate([drawn.numpy(), edge])
    together = region.near(torch.as_tensor(inputs)).tolist()
    assert [region.is_near(x) for x in inputs] == together


def test_inputs_outside_are_refused_and_warned_of_as_in_batches() -> None:
    ensemble = Ensemble((part("constant", 0, 1, 1.0),), Layout.single(OUTPUTS))
    shielded = ensemble.apply_shield(
        np.zeros(OUTPUTS), Linear(BOX, [[1.0, 0, 0, 0]], 9.0, "<=", name="rule")
    )
    with raises(InvalidInput, "outside"):
        shielded.predict(np.full((1, INPUTS), 3.0), outside="refuse")
    shielded.predict(np.full((1, INPUTS), 1.0), outside="refuse")


@pytest.mark.parametrize("empty", [False, True])
def test_products_with_few_entries_leave_out_the_zeros(empty: bool) -> None:
    rng = np.random.default_rng(0)
    matrix = np.where(rng.random((200, LEAST_ENTRIES // 100)) < 0.05, rng.normal(size=1), 0.0)
    matrix[3] = 0.0 if empty else 1.0
    for shape in ((len(matrix[0]),), (3, len(matrix[0]))):
        vectors = rng.normal(size=shape)
        np.testing.assert_allclose(plan_product(matrix)(vectors), vectors @ matrix.T, atol=1e-9)


def test_exact_ties_are_decided_alike_alone_and_in_a_batch() -> None:
    """Sums in another order are not equal to the last bit, so that ties would be broken by it."""
    random, broken = np.random.default_rng(0), 0
    for _ in range(50):
        scores = random.uniform(size=7)
        turned = np.stack([np.roll(scores, turn) for turn in range(7)])  # all classes tie
        own = Part(ConstantMembers(turned, 1), np.zeros(7, np.int64), np.full(7, 1 / 7))
        ensemble = Ensemble((own,), Layout.single(7))
        inputs = np.zeros((20, 1))
        decided = ensemble.decide(inputs)
        alone = np.array([ensemble.decide(one[None])[0] for one in inputs])
        np.testing.assert_array_equal(alone, decided)
        broken += int(ensemble.predict(inputs[:1]).argmax() != decided[0])
    assert broken  # or this tests nothing
