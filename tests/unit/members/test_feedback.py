"""Networks with feedback give what their formula says, survive saving, and learn to balance."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cg4ai.colgen.pricing.gradient.training import Training, train
from cg4ai.errors import InvalidInput
from cg4ai.members import (
    FeedbackArchitecture,
    FeedbackMembers,
    Loads,
    NetworkArchitecture,
    concatenate,
    restore,
)
from raising import raises

GROUPS = (2, 3)
MATRIX = np.array([[1.0, 0.0, 2.0, 0.0, 0.5], [0.0, 1.0, 0.0, 1.0, 0.0], [0.3, 0.0, 0.0, 0.0, 1.0]])
SOURCE = np.array([0, 0, 1, 1, 1])


def architecture(stages: int = 2) -> FeedbackArchitecture:
    network = NetworkArchitecture(
        2, 5, hidden=(4,), skip=True, output="grouped", groups=GROUPS, shift=np.full(2, 0.5)
    )
    return FeedbackArchitecture(network, Loads(MATRIX, SOURCE), stages, first=-MATRIX.T)


def members(count: int = 3, seed: int = 0) -> FeedbackMembers:
    own = architecture()
    return own.members(own.initialise(count, torch.Generator().manual_seed(seed)))


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max())
    return powers / powers.sum()


def by_hand(stack: FeedbackMembers, number: int, x: np.ndarray) -> np.ndarray:
    p = {name: value[number].numpy() for name, value in stack.parameters.items()}
    z = x - 0.5
    hidden = np.maximum(p["weight_0"] @ z + p["bias_0"], 0.0)
    scores = p["weight_1"] @ hidden + p["bias_1"] + p["skip"] @ z
    answer = np.concatenate([softmax(part) for part in np.split(scores, [2])])
    for stage in range(stack.architecture.stages):
        loads = MATRIX @ (x[SOURCE] * answer)
        pressure = softmax(np.exp(p[f"sharpness_{stage}"]) * loads / max(loads.max(), 1e-30))
        scores = scores + p[f"feedback_{stage}"] @ pressure
        answer = np.concatenate([softmax(part) for part in np.split(scores, [2])])
    return answer


def test_outputs_are_those_of_the_formula() -> None:
    stack = members()
    inputs = np.random.default_rng(1).uniform(0, 1, (7, 2))
    found = stack.outputs(torch.tensor(inputs)).numpy()
    wanted = [[by_hand(stack, number, x) for x in inputs] for number in range(3)]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_without_any_load_answers_are_still_shares() -> None:
    found = members().outputs(torch.zeros(1, 2, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(found[..., :2].sum(-1), 1.0)
    np.testing.assert_allclose(found[..., 2:].sum(-1), 1.0)


def test_saved_joined_and_replaced_tensors_give_the_same_outputs() -> None:
    stack = members()
    inputs = torch.rand(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    again = restore(stack.state())
    assert torch.equal(again.outputs(inputs), stack.outputs(inputs))
    joined = concatenate([stack, members(seed=1)])
    assert joined is not None
    assert torch.equal(joined.outputs(inputs)[:3], stack.outputs(inputs))
    other = stack.with_tensors(stack.tensors())
    assert torch.equal(other.outputs(inputs), stack.outputs(inputs))
    # alone it is computed by products of other sizes, which may round otherwise
    alone = stack.take(np.array([2])).outputs(inputs)[0]
    torch.testing.assert_close(alone, stack.outputs(inputs)[2], rtol=1e-13, atol=1e-13)


def test_gradients_reach_the_inputs() -> None:
    stack = members(1)
    inputs = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(stack.outputs, (inputs,))


def test_it_learns_to_balance_two_links() -> None:
    """One demand over two links of capacity 1 and 3: the least largest load needs 1/4 and 3/4."""
    loads = Loads(np.diag([1.0, 1 / 3]), np.array([0, 0]))
    network = NetworkArchitecture(1, 2, hidden=(4,), output="grouped", groups=(2,))
    own = FeedbackArchitecture(network, loads, 1)

    def loss(parameters: dict[str, torch.Tensor], step: int) -> torch.Tensor:
        x = torch.rand(32, 1, generator=made) + 0.5
        answers = own.forward(parameters, x)
        return (answers * x * torch.tensor([1.0, 1 / 3])).amax(-1).mean(-1)

    made = torch.Generator().manual_seed(0)
    training = Training(300, learning_rate=0.05, schedule="onecycle")
    trained = train(own.initialise(1, made), loss, training, models=1)
    share = own.members(trained).outputs(torch.tensor([[0.8]], dtype=torch.float64))[0, 0, 0]
    assert float(share) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("matrix", "source", "code"),
    [
        (-MATRIX, SOURCE, "shape"),
        (MATRIX, SOURCE[:3], "shape"),
        (MATRIX[:, :4], SOURCE[:4], "shape"),
        (MATRIX, SOURCE + 1, "range"),
    ],
)
def test_loads_that_do_not_fit_are_refused(
    matrix: np.ndarray, source: np.ndarray, code: str
) -> None:
    network = architecture().network
    with raises(InvalidInput, code):
        FeedbackArchitecture(network, Loads(matrix, source))
