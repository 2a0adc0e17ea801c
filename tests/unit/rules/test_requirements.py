"""Requirements: rows against the rule written out by hand, validators, Jensen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai.errors import InvalidInput
from cg4ai.rules import (
    Concave,
    Linear,
    Margin,
    Probability,
    Rate,
)
from cg4ai.rules.regions import Ball, Box, Pool
from cg4ai.rules.rows import ConcaveRows, LinearRows
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6, 4))
F = RANDOM.normal(size=(6, 3))  # outputs at X
BOX = Box(-np.ones(4), np.ones(4))


def values(requirement: Any, outputs: np.ndarray = F) -> np.ndarray:
    requirement.check(4, outputs.shape[-1])
    rows = requirement.rows(3)
    assert rows.requirement == 3
    return rows.values(torch.as_tensor(outputs)).numpy() - rows.bounds


class Weighted:
    """Two input-dependent rules: x0 * (f0 + f1) and x1 * f2."""

    count = 2

    def values(self, inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        first = inputs[:, 0] * (outputs[..., 0] + outputs[..., 1])
        return torch.stack([first, inputs[:, 1] * outputs[..., 2]], -1)

    def coefficients(self, inputs: np.ndarray, which: np.ndarray) -> np.ndarray:
        a = np.zeros((len(inputs), 3))
        a[which == 0, :2] = inputs[which == 0, :1]
        a[which == 1, 2] = inputs[which == 1, 1]
        return a


class TestLinear:
    def test_one_row_of_coefficients(self) -> None:
        a = np.array([1.0, -2.0, 0.5])
        assert np.allclose(values(Linear(X, a, 0.3)), F @ a - 0.3)
        assert np.allclose(values(Linear(X, a, 0.3, "<=")), 0.3 - F @ a)
        both = values(Linear(X, a, 0.3, "=="))
        assert np.allclose(both, np.concatenate([F @ a - 0.3, 0.3 - F @ a]))

    @pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array, torch.as_tensor])
    def test_coefficients_and_bounds_per_input(self, form: Callable[[Any], Any]) -> None:
        a, b = RANDOM.normal(size=(6, 3)), RANDOM.normal(size=6)
        assert np.allclose(values(Linear(X, form(a), b)), (a * F).sum(1) - b)

    @pytest.mark.parametrize("own", [False, True])
    @pytest.mark.parametrize("shape", [(), (2,), (6, 1), (6, 2)])
    def test_several_rules_at_each_input(self, own: bool, shape: tuple[int, ...]) -> None:
        a, b = RANDOM.normal(size=(6 if own else 1, 2, 3)), RANDOM.normal(size=shape)
        expected = np.einsum("mlr,mr->ml", np.broadcast_to(a, (6, 2, 3)), F) - b
        requirement = Linear(X, a, b)
        assert np.allclose(values(requirement), expected.ravel())
        assert "input 1, rule 0" in requirement.describe(requirement.rows(0), 2)
        both = values(Linear(X, a, b, "=="))
        assert np.allclose(both, np.concatenate([expected.ravel(), -expected.ravel()]))

    def test_functional_on_a_list(self) -> None:
        expected = np.stack([X[:, 0] * (F[:, 0] + F[:, 1]) - 1, X[:, 1] * F[:, 2] - 2], 1)
        requirement = Linear(X, Weighted(), [1.0, 2.0])
        assert np.allclose(values(requirement), expected.ravel())
        assert "rule 1" in requirement.describe(requirement.rows(0), 1)

    @pytest.mark.parametrize("sense", [">=", "<=", "=="])
    @pytest.mark.parametrize("rules", [np.array([[1.0, 0, 1], [0, 2, -1]]), Weighted()])
    def test_over_a_region_rows_and_violations_agree(self, sense: str, rules: Any) -> None:
        requirement = Linear(BOX, rules, [0.5, -0.5], sense)
        requirement.check(4, 3)
        assert requirement.rows(0) is None
        assert requirement.slack == "shared"
        found = requirement.violations(torch.as_tensor(X), torch.as_tensor(F)).numpy()
        total = 4 if sense == "==" else 2
        assert found.shape == (6, total)
        for rule in range(total):
            rows = requirement.rows_at(X, np.full(6, rule), 1)
            short = rows.bounds - rows.values(torch.as_tensor(F)).numpy()
            assert np.allclose(short, found[:, rule])
        by_hand = (
            F @ rules.T
            if isinstance(rules, np.ndarray)
            else rules.values(torch.as_tensor(X), torch.as_tensor(F)).numpy()
        )
        sign = -1 if sense == "<=" else 1
        assert np.allclose(found[:, :2], sign * (np.array([0.5, -0.5]) - by_hand))

    def test_violations_carry_gradients_to_inputs_and_outputs(self) -> None:
        x = torch.as_tensor(X).requires_grad_(True)
        f = torch.as_tensor(F).requires_grad_(True)
        Linear(BOX, Weighted(), 0.0).violations(x, f).sum().backward()
        assert x.grad is not None
        assert f.grad is not None
        assert torch.allclose(x.grad[:, 1], -f.detach()[:, 2])

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            ((X, [1.0], 0.0, ">"), "unknown-name"),
            ((X, np.ones((5, 3)), 0.0), "shape"),
            ((X, np.ones((2, 3, 1)), 0.0), "shape"),
            ((X, np.ones((1, 6, 2, 3)), 0.0), "shape"),
            ((BOX, np.ones((1, 2, 3)), 0.0), "shape"),
            ((X, np.ones((1, 2, 3)), np.zeros(6)), "shape"),
            ((X, [np.inf, 1.0], 0.0), "not-finite"),
            ((X, [1.0, 2.0], np.zeros(5)), "shape"),
            ((X, [1.0, 2.0], np.nan), "not-finite"),
            ((BOX, np.ones((2, 3)), np.zeros(3)), "shape"),
            ((X[0], [1.0], 0.0), "shape"),
        ],
    )
    def test_refused(self, arguments: tuple[Any, ...], code: str) -> None:
        with raises(InvalidInput, code):
            Linear(*arguments)

    def test_near_misses_are_accepted(self) -> None:
        equal = Linear(np.zeros((2, 4)), [1.0], [1.0, 1.0], "==")
        opposed = Linear(np.zeros((2, 4)), [[2.0, 0], [-1, 0]], [2.0, -1.5])
        trivial = Linear(X, [0.0, 0.0], 0.0)
        for requirement, count in ((equal, 4), (opposed, 2), (trivial, len(X))):
            rows = requirement.rows(0)
            assert rows is not None
            assert len(rows) == count
        assert Linear(BOX, [[1.0, 1], [-1, -1]], [0.5, -1]).over_region

    def test_sizes_are_checked(self) -> None:
        requirement = Linear(X, [1.0, 2.0, 3.0], 0.0)
        requirement.check(4, 3)
        with raises(InvalidInput, "shape"):
            requirement.check(5, 3)
        with raises(InvalidInput, "shape"):
            requirement.check(4, 2)

    def test_a_functional_that_is_not_linear_is_refused(self) -> None:
        class Affine(Weighted):
            def values(self, inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
                return super().values(inputs, outputs) + 1

        with raises(InvalidInput, "unsupported"):
            Linear(BOX, Affine(), 0.0).check(4, 3)
        with raises(InvalidInput, "shape", "expected"):
            Linear(X, Weighted(), 0.0).check(4, 5)

    def test_descriptions(self) -> None:
        requirement = Linear(X, [1.0, -2.0, 0.0], 0.5, "<=", name="cap")
        assert requirement.describe(requirement.rows(0), 2) == "cap: input 2, f0 - 2 f1 <= 0.5"
        equal = Linear(X, [0.0, 1.0, 0.0], 0.5, "==")
        taken = equal.rows(0).take(np.array([7, 1]))
        assert equal.describe(taken, 0) == "Linear: input 1, f1 <= 0.5"
        assert equal.describe(taken, 1) == "Linear: input 1, f1 >= 0.5"
        region = Linear(BOX, [[1.0, 0, 0], [0, 1.0, 0]], 0.25)
        rows = region.rows_at(np.zeros((1, 4)), np.array([1]), 0)
        assert region.describe(rows, 0) == "Linear: at x = [0, 0, 0, 0], rule 1, f1 >= 0.25"


class TestLabels:
    Y = np.array([0, 1, 2, 2, 1, 0])

    def test_probability_rows(self) -> None:
        requirement = Probability(X, self.Y, 0.6)
        assert np.allclose(values(requirement), F[np.arange(6), self.Y] - 0.6)
        assert requirement.describe(requirement.rows(0), 3) == (
            "Probability: input 3, class 2 >= 0.6"
        )
        each = np.linspace(0.1, 1, 6)
        assert np.allclose(values(Probability(X, self.Y, each)), F[np.arange(6), self.Y] - each)

    def test_margins_by_hand(self) -> None:
        member = values(Margin(X, self.Y, 0.1, form="member"))
        pairwise = values(Margin(X, self.Y, 0.1, form="pairwise", classes=3))
        for j, y in enumerate(self.Y):
            gaps = [F[j, y] - F[j, c] - 0.1 for c in range(3) if c != y]
            assert member[j] == pytest.approx(min(gaps))
            assert np.allclose(pairwise[2 * j : 2 * j + 2], gaps)

    def test_margin_descriptions_survive_take(self) -> None:
        pairwise = Margin(X, self.Y, 0.1, form="pairwise", classes=3)
        taken = pairwise.rows(0).take(np.array([5]))
        assert pairwise.describe(taken, 0) == "Margin: input 2, class 2 minus class 1 >= 0.1"
        member = Margin(X, self.Y, 0.1, form="member")
        rows = member.rows(0)
        assert isinstance(rows, ConcaveRows)
        taken = rows.take(np.array([4, 2]))
        assert member.describe(taken, 1) == "Margin: input 2, class 2 margin >= 0.1"
        assert np.allclose(
            taken.values(torch.as_tensor(F[[4, 2]])), rows.values(torch.as_tensor(F))[[4, 2]]
        )

    @pytest.mark.parametrize(
        "requirement",
        [
            Probability(BOX, 1, 0.7, classes=3),
            Margin(BOX, 1, 0.2, classes=3),
            Margin(Ball(np.zeros(4), 1.0), 1, 0.2, form="pairwise", classes=3),
        ],
    )
    def test_over_a_region(self, requirement: Any) -> None:
        found = requirement.violations(torch.as_tensor(X), torch.as_tensor(F)).numpy()
        for rule in range(found.shape[1]):
            rows = requirement.rows_at(X, np.full(6, rule), 0)
            short = rows.bounds - rows.values(torch.as_tensor(F)).numpy()
            assert np.allclose(short, found[:, rule])
            assert "class 1" in requirement.describe(rows, 0)
        margin = F[:, 1] - np.maximum(F[:, 0], F[:, 2])
        expected = 0.7 - F[:, 1] if isinstance(requirement, Probability) else 0.2 - margin
        assert np.allclose(found.max(1), expected)
        moved = dataclasses.replace(requirement, inputs=Box(np.zeros(4), np.ones(4)))
        assert moved.labels.tolist() == [1]

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda y: Probability(X, y, 0.0), "range"),
            (lambda y: Probability(X, y, 1.2), "range"),
            (lambda y: Probability(X, y[:3]), "shape"),
            (lambda y: Probability(X, y - 1), "range"),
            (lambda y: Probability(X, y + 0.5), "type"),
            (lambda y: Probability(X, y, classes=2), "range"),
            (lambda y: Probability(BOX, y), "shape"),
            (lambda y: Probability(X, ["a"] * 6).check(4, 2), "unsupported"),
            (lambda y: Probability(X, ["a"] * 5), "shape"),
            (lambda y: Margin(X, y, np.nan), "not-finite"),
            (lambda y: Margin(X, y, 0.1, form="pairwis"), "unknown-name"),
            (lambda y: Margin(X, y * 0, 0.1, classes=1), "range"),
            (lambda y: Probability(X, y, slack="rows"), "unknown-name"),
            (lambda y: Probability(X, y).check(4, 2), "range"),
            (lambda y: Probability(X, y).rows(0), "invalid-input"),
            (lambda y: Margin(X, y * 0, 0.1).check(4, 1), "shape"),
            (lambda y: Probability(X, y, classes=3).rows_at(X, y, 0), "unsupported"),
        ],
    )
    def test_refused(self, make: Callable[[np.ndarray], Any], message: str) -> None:
        with raises(InvalidInput, message):
            make(self.Y)

    def test_accepted_forms_of_labels(self) -> None:
        for labels in (self.Y.astype(float), torch.as_tensor(self.Y), self.Y.tolist()):
            assert Probability(X, labels).labels.tolist() == self.Y.tolist()

    def test_a_pool_is_searched_and_a_list_is_not(self) -> None:
        pool = Probability(Pool(X), self.Y)
        assert pool.region is pool.inputs
        assert pool.slack == "row"
        listed = Probability(X, self.Y)
        assert listed.region is None


class TestConcave:
    def test_rows_and_region(self) -> None:
        spread = Concave(X, lambda f: -f.square().sum(-1), -2.0)
        assert np.allclose(values(spread), 2.0 - (F**2).sum(1))
        region = Concave(BOX, lambda f: f.amin(-1), 0.1)
        region.check(4, 3)
        found = region.violations(torch.as_tensor(X), torch.as_tensor(F)).numpy()
        assert np.allclose(found[:, 0], 0.1 - F.min(1))
        rows = region.rows_at(X, np.zeros(6, np.int64), 2)
        assert np.allclose(rows.bounds - rows.values(torch.as_tensor(F)).numpy(), found[:, 0])

    @pytest.mark.parametrize(
        ("functional", "code"),
        [
            (lambda f: f.amax(-1), "not-convex"),
            (lambda f: f[..., 0] * f[..., 1], "not-convex"),
            (lambda f: -f[..., 0].abs().sqrt(), "not-convex"),
            (lambda f: f.sum(), "shape"),
            (lambda f: f, "shape"),
            (lambda f: f[..., 0] - f[..., 0].mean(-1, keepdim=True), "unsupported"),
            (lambda f: f[..., 0] * torch.nan, "not-finite"),
        ],
    )
    def test_refused_with_a_witness(self, functional: Any, code: str) -> None:
        with raises(InvalidInput, code):
            Concave(X, functional, 0.0).check(4, 3)

    def test_concave_ones_pass_also_off_their_domain(self) -> None:
        for functional in (
            lambda f: f.amin(-1),
            lambda f: f[..., 0] - f.logsumexp(-1),
            lambda f: f[..., 1].log(),
            lambda f: -f.abs().sum(-1),
        ):
            Concave(X, functional, 0.0).check(4, 3)
        cubic = Concave(X, lambda f: -(f[..., 0] ** 3), -1.0, domain="probabilities")
        cubic.check(4, 3)
        with raises(InvalidInput, "not-convex"):
            Concave(X, lambda f: -(f[..., 0] ** 3), -1.0).check(4, 3)

    def test_wrong_arguments(self) -> None:
        with raises(InvalidInput, "type"):
            Concave(X, 3, 0.0)  # type: ignore[arg-type]
        with raises(InvalidInput, "unknown-name", "domain"):
            Concave(X, lambda f: f[..., 0], 0.0, domain="simplex")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), members=st.integers(1, 5), classes=st.integers(2, 5))
def test_jensen_the_mixture_is_at_least_the_mean_of_its_members(
    seed: int, members: int, classes: int
) -> None:
    random = np.random.default_rng(seed)
    outputs = torch.as_tensor(random.normal(size=(members, 6, classes)) * 3)
    weights = torch.as_tensor(random.dirichlet(np.ones(members)))
    mixture = torch.einsum("i,inr->nr", weights, outputs)
    labels = random.integers(classes, size=6)
    for requirement in (
        Margin(X, labels, 0.0, form="member"),
        Concave(X, lambda f: f[..., 0] - f.logsumexp(-1), 0.0),
    ):
        requirement.check(4, classes)
        rows = requirement.rows(0)
        assert rows is not None
        mean = torch.einsum("i,in->n", weights, rows.values(outputs))
        assert (rows.values(mixture) >= mean - 1e-9).all()
    pairwise = Margin(X, labels, 0.0, form="pairwise", classes=classes).rows(0)
    member = Margin(X, labels, 0.0, form="member").rows(0)
    least = pairwise.values(mixture).reshape(6, classes - 1).amin(1)
    assert torch.allclose(least, member.values(mixture))


class TestRate:
    G = np.array(["a", "b", "a", "c", "b", "c"])

    def means(self) -> dict[str, float]:
        return {g: float(F[g == self.G, 1].mean()) for g in "abc"}

    def test_pairs_of_groups(self) -> None:
        mean = self.means()
        found = values(Rate(X, self.G, tolerance=0.02))
        expected = []
        for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
            gap = mean[one] - mean[other]
            expected += [gap + 0.02, 0.02 - gap]
        assert np.allclose(found, expected)
        one_pair = values(Rate(X, self.G, tolerance=0.02, between=("a", "c")))
        assert np.allclose(one_pair, expected[2:4])

    def test_budget_of_all_and_of_groups(self) -> None:
        whole = Rate.budget(X, mean_at_most=0.4, output=2)
        assert np.allclose(values(whole), 0.4 - F[:, 2].mean())
        assert whole.describe(whole.rows(0), 0) == "Rate: mean of output 2, all inputs <= 0.4"
        each = values(Rate.budget(X, self.G, mean_at_least=-1, mean_at_most=1))
        assert np.allclose(each, [v for m in self.means().values() for v in (m + 1, 1 - m)])

    def test_decisions_and_description(self) -> None:
        rate = Rate(X, self.G, tolerance=0.1)
        decided = F[:, 1] >= 0.2
        expected = {g: decided[g == self.G].mean() for g in "abc"}
        assert rate.decision_rates(F, 0.2) == expected
        rate.check(4, 3)
        rows = rate.rows(0).take(np.array([3]))
        assert isinstance(rows, LinearRows)
        assert rate.describe(rows, 0) == (
            "Rate: mean of output 1, group 'a' minus group 'c' <= 0.1"
        )

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda g: Rate(X, g), "missing-argument"),
            (lambda g: Rate(X, g, tolerance=-0.1), "range"),
            (lambda g: Rate(X, g, tolerance=np.nan), "not-finite"),
            (lambda g: Rate(X, None, tolerance=0.1), "unsupported"),
            (lambda g: Rate(X, g[:4], tolerance=0.1), "shape"),
            (lambda g: Rate(X, g, tolerance=0.1, between=("a", "z")), "range"),
            (lambda g: Rate(X, g, tolerance=0.1, between=("a", "a")), "range"),
            (lambda g: Rate(X, g, between=("a", "b"), mean_at_most=1), "missing-argument"),
            (lambda g: Rate(BOX, g, tolerance=0.1), "type"),
            (lambda g: Rate.budget(X, mean_at_least=0.6, mean_at_most=0.5), "infeasible"),
            (lambda g: Rate.budget(X, mean_at_least=[0.1, 0.2]), "shape"),  # type: ignore[arg-type]
            (lambda g: Rate.budget(X, mean_at_least=0.1, output=-1), "range"),
            (lambda g: Rate.budget(X, mean_at_least=0.1, output=3).check(4, 3), "range"),
            (lambda g: Rate(X, [None, *g[1:]], tolerance=0.1), "type"),
        ],
    )
    def test_refused(self, make: Callable[[np.ndarray], Any], message: str) -> None:
        with raises(InvalidInput, message):
            make(self.G)


def test_a_requirement_does_not_follow_later_changes_of_the_data() -> None:
    mine = X.copy()
    requirement = Linear(mine, [1.0], 0.0)
    mine[:] = 0
    assert np.array_equal(requirement.rows(0).inputs, X)


def test_a_separator_without_its_methods_is_refused() -> None:
    class Half:
        def find(self) -> None:
            pass

    with pytest.raises(InvalidInput, match="SeparatorDefaults"):
        Linear(Box([0], [1]), [1.0], 1.0, separator=Half())  # type: ignore[arg-type]
