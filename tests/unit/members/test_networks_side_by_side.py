"""Networks side by side: what one does not see never reaches it, in training or in prediction."""

from __future__ import annotations

import numpy as np
import torch

from cg4ai.colgen.pricing.gradient.training import Training, train
from cg4ai.errors import InvalidInput
from cg4ai.members import SideBySideArchitecture, concatenate, restore
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.members.side_by_side import InputMask
from cg4ai.seeds import generator
from raising import raises

SEEN = np.array([[1, 0, 0], [0, 1, 1], [0, 1, 1]], bool)


def architecture() -> SideBySideArchitecture:
    network = NetworkArchitecture(
        3, 3, hidden=(5, 4), skip=True, output="softmax", shift=np.ones(3), scale=np.full(3, 2.0)
    )
    return SideBySideArchitecture(network, SEEN, (3, 1, 2))


def test_outputs_are_those_of_the_single_networks() -> None:
    made = architecture()
    members = made.members(made.initialise(2, generator(0)))
    x = torch.rand(7, 3, generator=generator(1), dtype=torch.float64) * 4
    outputs = members.outputs(x)
    assert outputs.shape == (2, 7, 6)
    for member in range(2):
        alone = members.networks(member).outputs(x)  # (networks, n, widest)
        ends = np.cumsum([0, *made.sizes])
        for number, size in enumerate(made.sizes):
            own = outputs[member, :, ends[number] : ends[number + 1]]
            torch.testing.assert_close(own, alone[number, :, :size], rtol=0, atol=0)
            assert (alone[number, :, size:] == 0).all()


def test_unseen_inputs_change_nothing_after_training() -> None:
    made = architecture()
    inputs = torch.rand(64, 3, generator=generator(2)) * 4

    def loss(parameters: dict[str, torch.Tensor], step: int) -> torch.Tensor:
        return made.forward(parameters, inputs)[..., 0].mean().reshape(1)

    start = made.initialise(1, generator(0))
    trained = train(start, loss, Training(30, 0.05, "onecycle"), models=1)
    members = made.members(trained)
    for name in ("weight_0", "skip"):
        by_input = members.parameters[name][0].movedim(-1, 1)  # (networks, inputs, units)
        assert not torch.equal(members.parameters[name], start[name].double())
        assert (by_input[torch.as_tensor(~SEEN)] == 0).all()
    x = inputs.double()
    other = x.clone()
    other[:, 0] = 4 - other[:, 0]
    assert torch.equal(members.outputs(x)[..., 3:], members.outputs(other)[..., 3:])
    assert not torch.equal(members.outputs(x)[..., :3], members.outputs(other)[..., :3])


def test_state_gives_the_same_bits_and_stacks_join() -> None:
    made = architecture()
    members = made.members(made.initialise(2, generator(3)))
    x = torch.rand(9, 3, generator=generator(4), dtype=torch.float64)
    assert torch.equal(restore(members.state()).outputs(x), members.outputs(x))
    joined = concatenate([members, members.take(np.array([1]))])
    assert joined is not None
    assert torch.equal(joined.outputs(x)[2], members.outputs(x)[1])
    same = members.with_tensors(members.tensors())
    assert torch.equal(same.outputs(x), members.outputs(x))


def test_what_does_not_fit_is_refused() -> None:
    network = NetworkArchitecture(3, 3, hidden=(5,), output="softmax")
    with raises(InvalidInput, "range"):
        SideBySideArchitecture(network, SEEN, (3, 4, 1))
    with raises(InvalidInput, "shape"):
        SideBySideArchitecture(network, SEEN, (3, 3))
    with raises(InvalidInput, "shape"):
        InputMask(np.ones(3, bool))
    state = architecture().members(architecture().initialise(1, generator(0))).state()
    damaged = {**state.arrays, "network.weight_0": np.zeros(3)}
    with raises(InvalidInput, "shape"):
        restore(type(state)(state.kind, state.config, damaged))
