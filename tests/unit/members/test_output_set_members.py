"""Members of every kind whose outputs lie in a set at any input, whatever they compute."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.ensemble import RandomForestRegressor

from cg4ai.errors import InvalidInput
from cg4ai.members import (
    ArrangedArchitecture,
    ArrangedMembers,
    ConstantMembers,
    ModuleArchitecture,
    NetworkArchitecture,
    concatenate,
    from_sklearn,
    restore,
)
from cg4ai.members.output_sets import move_into_set
from cg4ai.records import Array
from cg4ai.rules import Ordered, OutputRule, OutputSet, Range, SumTo
from cg4ai.rules.output_sets import join_output_rules
from raising import raises

SIZE = 4
SETS: dict[str, list[OutputRule]] = {
    "range": [Range(-1, [0.5, 1, 1, 2])],
    "ordered": [Ordered()],
    "sum": [SumTo(1)],
    "free sum": [SumTo(3, low=None)],
    "all": [Range(-2, 1.5), Ordered((3, 1, 0)), SumTo(0.5, [0, 1, 3], low=-1)],
    "mixed ends": [Range([-1, -9, 0, 0], 5, [0, 1, 2, 3]), SumTo(4, low=None), Ordered((1, 2, 3))],
}


def output_set(name: str) -> OutputSet:
    return join_output_rules(SETS[name], SIZE)


def missed(outputs: Array, source: OutputSet) -> float:
    matrix, bound = source.rows
    return float((bound - outputs @ matrix.T).max())


def members_of_each_kind() -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    network = NetworkArchitecture(2, SIZE, hidden=(8,))
    module = ModuleArchitecture(lambda: torch.nn.Linear(2, SIZE), 2, SIZE, "linear")
    data = np.random.default_rng(0).normal(size=(50, 2 + SIZE))
    forest = RandomForestRegressor(5, random_state=0).fit(data[:, :2], 3 * data[:, 2:])
    return {
        "network": network.members(network.initialise(3, generator)),
        "module": module.members(module.initialise(2, generator)),
        "forest": from_sklearn(forest),
        "constant": ConstantMembers(4 * data[:3, 2:], 2),
    }


@pytest.mark.parametrize("name", SETS)
def test_members_of_every_kind_lie_in_the_set(name: str) -> None:
    source = output_set(name)
    inputs = (
        np.random.default_rng(1).normal(size=(200, 2))
        * 10.0 ** np.arange(-2, 18).repeat(10)[:, None]
    )
    for kind, inner in members_of_each_kind().items():
        arranged = ArrangedMembers(inner, source)  # type: ignore[arg-type]
        outputs = arranged.outputs(torch.as_tensor(inputs)).numpy()
        assert np.isfinite(outputs).all()
        scale = 1 + np.abs(outputs).max()
        assert missed(outputs.reshape(-1, SIZE), source) <= 1e-14 * scale, kind


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=64), min_size=SIZE, max_size=SIZE),
    st.sampled_from(["range", "all", "sum"]),
)
def test_any_numbers_are_moved_into_the_set(values: list[float], name: str) -> None:
    source = output_set(name)
    assert missed(move_into_set(source, np.array([values])), source) <= 1e-14


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.01, 1.0, 100.0]))
def test_box_and_sum_are_a_projection(seed: int, size: float) -> None:
    random = np.random.default_rng(seed)
    low = np.where(random.random(SIZE) < 0.3, -np.inf, random.normal(size=SIZE) - 1)
    high = np.where(
        random.random(SIZE) < 0.3, np.inf, np.maximum(low, -3) + random.exponential(size=SIZE)
    )
    first, last = np.maximum(low, -3), np.minimum(high, 5)
    total = float((first + random.random() * (last - first)).sum())
    source = join_output_rules([Range(low, high), SumTo(total, low=None)], SIZE)
    z = size * random.normal(size=SIZE)
    own = move_into_set(source, z)
    assert missed(own[None], source) <= 1e-12 * (1 + size)
    # a point of a convex set is nearest to z if no other lies further in the direction of z
    furthest = linprog(
        own - z, A_eq=np.ones((1, SIZE)), b_eq=[total], bounds=np.array([low, high]).T
    )
    assert furthest.status == 0
    assert (own - z) @ own <= furthest.fun + 1e-9 * (1 + size) ** 2


def test_outputs_in_the_set_stay_as_they_are() -> None:
    source = output_set("all")
    inside = move_into_set(source, np.random.default_rng(0).normal(size=(100, SIZE)))
    np.testing.assert_allclose(move_into_set(source, inside), inside, atol=1e-15)


def test_training_reaches_a_target_from_outside_the_range() -> None:
    """Where clamping alone would stop every gradient, one that leads inside passes."""
    source = join_output_rules([Range(0, 1)], 1)
    architecture = ArrangedArchitecture(NetworkArchitecture(1, 1, hidden=()), source)
    parameters = {
        "weight_0": torch.zeros(1, 1, 1),
        "bias_0": torch.full((1, 1), 5.0, requires_grad=True),
    }
    optimiser = torch.optim.SGD([parameters["bias_0"]], lr=0.5)
    inputs = torch.zeros(1, 1)
    for _ in range(100):
        optimiser.zero_grad()
        loss = (architecture.forward(parameters, inputs) - 0.25).square().sum()
        loss.backward()
        optimiser.step()
    assert parameters["bias_0"].item() == pytest.approx(0.25, abs=1e-3)


def test_gradients_inside_are_those_of_differences() -> None:
    source = join_output_rules([Range(-1, 3), SumTo(2, low=None)], 3)
    architecture = ArrangedArchitecture(NetworkArchitecture(1, 3, hidden=()), source)
    bias = torch.tensor([[0.3, 0.9, -4.0]], dtype=torch.float64)

    def forward(offset: torch.Tensor) -> torch.Tensor:
        parameters = {"weight_0": torch.zeros(1, 3, 1).double(), "bias_0": offset}
        return architecture.forward(parameters, torch.zeros(1, 1).double())[0, 0, :2]

    assert torch.autograd.gradcheck(forward, bias.requires_grad_())


@pytest.mark.parametrize("name", SETS)
def test_they_are_saved_stacked_and_taken_like_others(name: str) -> None:
    inputs = torch.randn(20, 2).double()
    source = output_set(name)
    for inner in members_of_each_kind().values():
        if type(inner).__name__ == "ModuleMembers":
            continue
        arranged = ArrangedMembers(inner, source)  # type: ignore[arg-type]
        again = restore(arranged.state())
        assert torch.equal(again.outputs(inputs), arranged.outputs(inputs))
        stack = concatenate([arranged, again])
        assert stack is not None
        assert len(stack) == 2 * len(arranged)
        assert torch.equal(stack.take(np.array([0])).outputs(inputs), arranged.outputs(inputs)[:1])
    other = ArrangedMembers(inner, output_set("all" if name == "sum" else "sum"))  # type: ignore[arg-type]
    assert concatenate([arranged, other]) is None


def test_another_number_of_outputs_is_refused() -> None:
    with raises(InvalidInput, "shape"):
        ArrangedMembers(ConstantMembers(np.zeros((1, 2)), 1), output_set("sum"))
