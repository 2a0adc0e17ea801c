"""Checks that all kinds of members share, at the edges: inputs, indices, weights, saved states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.data.arrays import is_traced
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray, MemberState

LARGEST = 10_000_000  # of any one size: more is a slip of the pen, or a hostile file


def check_size(value: object, name: str) -> int:
    """A count of inputs, outputs or units: an integer of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidInput(f"{name} must be an integer of at least 1, got {value!r}", code="range")
    if value > LARGEST:
        raise InvalidInput(f"{name} must be at most {LARGEST:,}, got {value!r:.40}", code="range")
    return int(value)


def check_inputs(inputs: object, input_size: int, device: torch.device) -> Tensor:
    """Inputs (n, input_size) as float64 on the members' device."""
    if not isinstance(inputs, Tensor):
        raise InvalidInput(
            f"inputs must be a torch tensor, got {type(inputs).__name__}; use torch.as_tensor",
            code="type",
        )
    if inputs.ndim != 2 or inputs.shape[1] != input_size:
        raise InvalidInput(
            f"inputs must be (n, {input_size}), got {tuple(inputs.shape)}", code="shape"
        )
    if inputs.device != device:
        raise InvalidInput(
            f"inputs are on {inputs.device} and the members on {device}; move one with .to(...)",
            code="conflict",
        )
    return inputs.to(torch.float64)


def check_indices(indices: IntArray, count: int, device: torch.device) -> Tensor:
    """Positions of members, all in 0..count-1."""
    positions = np.asarray(indices)
    if positions.ndim != 1 or (positions.size and positions.dtype.kind not in "iu"):
        raise InvalidInput(
            f"indices must be a list of integers, got {positions.dtype} {positions.shape}",
            code="type",
        )
    if positions.size and (positions.min() < 0 or positions.max() >= count):
        raise InvalidInput(
            f"indices must lie in 0..{count - 1}, got {positions.min()}..{positions.max()}",
            code="range",
        )
    return torch.as_tensor(positions.astype(np.int64), device=device)


def check_weights(weights: Tensor | Array, count: int, device: torch.device) -> Tensor:
    """One finite number per member, float64; a tensor keeps its gradient."""
    vector = as_tensor(weights).to(torch.float64).to(device)
    if vector.shape != (count,):
        raise InvalidInput(
            f"weights must be ({count},), one per member, got {tuple(vector.shape)}", code="shape"
        )
    if not is_traced() and not bool(torch.isfinite(vector).all()):
        raise InvalidInput("weights must be finite numbers", code="not-finite")
    return vector


def as_tensor(value: object) -> Tensor:
    """A tensor as it is, anything else by way of NumPy, where Python's floats are float64."""
    return value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))


def freeze_tensor(value: object, name: str, dtype: torch.dtype = torch.float64) -> Tensor:
    """A contiguous copy without gradient, so that later training cannot change members."""
    tensor = as_tensor(value).detach().to(dtype, copy=True).contiguous()
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise InvalidInput(
            f"{name} holds numbers that are not finite; training may have diverged",
            code="not-finite",
        )
    return tensor


def find_common_device(tensors: Mapping[str, Tensor]) -> torch.device:
    """The device all tensors of a stack are on."""
    devices = {tensor.device for tensor in tensors.values()}
    if len(devices) != 1:
        raise InvalidInput(
            f"a stack must be on one device, got {sorted(map(str, devices))}", code="conflict"
        )
    return devices.pop()


def check_stack(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], what: str
) -> int:
    """Names and shapes with one leading axis for members; returns how many there are."""
    missing, surplus = sorted(set(shapes) - set(tensors)), sorted(set(tensors) - set(shapes))
    if missing or surplus:
        parts = [f"missing {missing}"] * bool(missing) + [f"unexpected {surplus}"] * bool(surplus)
        raise InvalidInput(
            f"{what} must be {sorted(shapes)}: {', '.join(parts)}", code="unknown-name"
        )
    leading = [tensor.shape[0] for tensor in tensors.values() if tensor.ndim]
    count = leading[0] if leading else 0
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != (count, *shape):
            raise InvalidInput(
                f"{what}: {name} must be {(count, *shape)}, members first, "
                f"got {tuple(tensors[name].shape)}",
                code="shape",
            )
    return count


def read_state_field(state: MemberState, name: str, kind: type) -> Any:
    """An entry of a saved state's config, of the right JSON type."""
    if name not in state.config:
        raise InvalidInput(f"saved {state.kind} members: config lacks {name!r}", code="bad-file")
    value = state.config[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidInput(
            f"saved {state.kind} members: config {name!r} must be {kind.__name__}, got {value!r}",
            code="bad-file",
        )
    return value


def read_state_sizes(state: MemberState, name: str) -> tuple[int, ...]:
    """A list of integers from a saved state's config."""
    values = read_state_field(state, name, list)
    return tuple(
        check_size(value, f"saved {state.kind} members: each of {name}") for value in values
    )


def read_state_array(state: MemberState, name: str) -> NDArray[Any]:
    """A numeric array of a saved state."""
    if name not in state.arrays:
        raise InvalidInput(
            f"saved {state.kind} members: array {name!r} is missing", code="bad-file"
        )
    array = np.asarray(state.arrays[name])
    if array.dtype.kind not in "fiub":
        raise InvalidInput(
            f"saved {state.kind} members: array {name!r} must hold numbers, got {array.dtype}",
            code="bad-file",
        )
    return array


def as_array(tensor: Tensor) -> NDArray[Any]:
    """A copy for saving."""
    return tensor.detach().cpu().numpy().copy()


def evaluate_in_chunks(
    evaluate: Callable[[slice, slice], Tensor],
    count: int,
    n: int,
    *,
    steps: tuple[int, int],
    axis: int,
) -> Tensor:
    """`evaluate(members, inputs)` over a grid of slices, put together.

    Each part has its members along axis 0 and its inputs along `axis`. Without gradients a part
    is copied into the result at once, so that the peak is the result plus one part; with
    gradients the parts are joined and autograd keeps what it needs.
    """
    if is_traced():  # one graph for any number of inputs
        return evaluate(slice(None), slice(None))
    member_step, input_step = steps
    if count == 0 or n == 0 or (count <= member_step and n <= input_step):
        return evaluate(slice(0, count), slice(0, n))
    member_slices = [slice(i, min(i + member_step, count)) for i in range(0, count, member_step)]
    input_slices = [slice(i, min(i + input_step, n)) for i in range(0, n, input_step)]
    first = evaluate(member_slices[0], input_slices[0])
    if first.requires_grad:
        return torch.cat(
            [torch.cat([evaluate(m, i) for i in input_slices], dim=axis) for m in member_slices]
        )
    shape = list(first.shape)
    shape[0], shape[axis] = count, n
    result = first.new_empty(shape)
    for m in member_slices:
        for i in input_slices:
            is_first = m.start == 0 and i.start == 0
            part = result[m].narrow(axis, i.start, i.stop - i.start)
            part.copy_(first if is_first else evaluate(m, i))
    return result
