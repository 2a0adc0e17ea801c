"""Members that split demands by flows, affine in the inputs on each cell of a tree.

In a cell the flow of output k is `slope_k . x + offset_k`, not below 0; the outputs of a group are
its flows over their sum. Such a member answers demands with flows that follow them, and is simple
enough that loads have a closed form: it is the anchor of proofs about ratios.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.data.arrays import is_traced
from cg4ai.errors import InvalidInput
from cg4ai.members.checks import (
    as_array,
    check_indices,
    check_inputs,
    freeze_tensor,
    read_state_array,
)
from cg4ai.members.single import as_arrays
from cg4ai.protocols import MemberDefaults, Single
from cg4ai.records import Array, IntArray, MemberState

AT_ONCE = 4096  # inputs whose cells are looked up at once
TREE = ("feature", "threshold", "left", "right")
NAMES = (*TREE, "slope", "offset", "group")
WHOLE = ("feature", "left", "right", "group")


class FlowMembers(MemberDefaults):
    """A tree for each: `feature`, `threshold`, `left`, `right` (count, N), children after parents.

    An input goes left where its feature is at most the threshold; a node that is its own child is a
    cell, with `slope` (count, N, r, d) and `offset` (count, N, r). `group` (r,) says of which group
    each output is part.
    """

    kind = "flows"
    differentiable = True

    def __init__(self, **arrays: Any) -> None:
        missing = set(NAMES) ^ set(arrays)
        if missing:
            raise InvalidInput(
                f"flows need the arrays {', '.join(NAMES)}, got {sorted(missing)}",
                code="missing-argument",
            )
        self._own = {
            name: freeze_tensor(arrays[name], name, torch.int64 if name in WHOLE else torch.float64)
            for name in NAMES
        }
        self._check()
        self.device = self._own["slope"].device
        # found once: asking a GPU for numbers would wait for it
        sizes = torch.bincount(self._own["group"]).tolist()
        self._groups = len(sizes)
        self._depths = [
            _depth(*(self._own[side][one].tolist() for side in ("left", "right")))
            for one in range(len(self))
        ]

    def _check(self) -> None:
        slope, left, right = (self._own[name] for name in ("slope", "left", "right"))
        if slope.ndim != 4 or min(slope.shape[1:]) == 0:
            raise InvalidInput(
                f"slope must be (count, nodes, r, d), got {tuple(slope.shape)}", code="shape"
            )
        count, nodes, outputs, inputs = slope.shape
        shapes: dict[str, tuple[int, ...]] = {
            "offset": (count, nodes, outputs),
            "group": (outputs,),
        }
        shapes |= dict.fromkeys(("feature", "threshold", "left", "right"), (count, nodes))
        for name, shape in shapes.items():
            if tuple(self._own[name].shape) != shape:
                raise InvalidInput(
                    f"{name} must have shape {shape}, got {tuple(self._own[name].shape)}",
                    code="shape",
                )
        here = torch.arange(nodes, device=slope.device)
        leaf = (left == here) & (right == here)
        later = (left > here) & (right > here) & (left < nodes) & (right < nodes)
        feature, group = self._own["feature"], self._own["group"]
        if not bool((leaf | later).all()):
            raise InvalidInput(
                "children of a node come after it, or it is its own: left and right", code="range"
            )
        if not bool(((feature >= 0) & (feature < inputs)).all()) or bool((group < 0).any()):
            raise InvalidInput(
                f"feature must lie in 0..{inputs - 1}, and group at least at 0", code="range"
            )

    @property
    def input_size(self) -> int:
        return self._own["slope"].shape[3]

    @property
    def output_size(self) -> int:
        return self._own["slope"].shape[2]

    def __len__(self) -> int:
        return self._own["slope"].shape[0]

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size)."""
        x = check_inputs(inputs, self.input_size, self.device)
        # one graph for any number of inputs
        parts = (x,) if is_traced() else torch.split(x, AT_ONCE)
        members = [
            torch.cat([self._split(number, part) for part in parts]) for number in range(len(self))
        ]
        if not members:
            return x.new_zeros(0, x.shape[0], self.output_size)
        return torch.stack(members)

    def _split(self, number: int, x: Tensor) -> Tensor:
        own = self._own
        node = self._cell(number, x)
        slope, offset = own["slope"][number, node], own["offset"][number, node]
        flow = (torch.einsum("nrd,nd->nr", slope, x) + offset).clamp_min(0.0)
        group = own["group"]
        nothing = flow.new_zeros(2, x.shape[0], self._groups)
        whole = nothing[0].index_add(1, group, flow).index_select(1, group)
        even = nothing[1].index_add(1, group, torch.ones_like(flow)).index_select(1, group)
        share = flow / torch.where(whole > 0, whole, 1.0)
        return torch.where(whole > 0, share, 1.0 / even)

    def single(self) -> Single | None:
        own, groups = as_arrays(self._own), self._groups
        slope, offset, group = own["slope"], own["offset"], own["group"]
        trees = [[own[name][one].tolist() for name in TREE] for one in range(len(self))]
        even = 1.0 / np.bincount(group)[group]

        def split(number: int, x: Array) -> Array:
            node, (feature, threshold, left, right) = 0, trees[number]
            for _ in range(self._depths[number]):
                node = left[node] if x[feature[node]] <= threshold[node] else right[node]
            flow = np.maximum(slope[number, node].dot(x) + offset[number, node], 0.0)
            whole = np.bincount(group, flow, groups)[group]
            return np.asarray(np.where(whole > 0, flow / np.where(whole > 0, whole, 1.0), even))

        return lambda x: (np.stack([split(number, x) for number in range(len(trees))]), None)

    def _cell(self, number: int, x: Tensor) -> Tensor:
        """(n,): the node at which each input ends."""
        feature, threshold, left, right = (
            self._own[name][number] for name in ("feature", "threshold", "left", "right")
        )
        node = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
        for _ in range(self._depths[number]):
            below = x.gather(1, feature[node, None])[:, 0] <= threshold[node]
            node = torch.where(below, left[node], right[node])
        return node

    def take(self, indices: IntArray) -> Self:
        chosen = check_indices(indices, len(self), self.device)
        own = {
            name: value if name == "group" else value[chosen] for name, value in self._own.items()
        }
        return type(self)(**own)

    def to(self, device: torch.device | str) -> Self:
        return type(self)(**{name: value.to(device) for name, value in self._own.items()})

    def compatible(self, other: Self) -> bool:
        """Whether both can be one stack: trees of as many nodes, and the same groups."""
        mine, theirs = self._own, other._own
        return (
            self.device == other.device
            and mine["slope"].shape[1:] == theirs["slope"].shape[1:]
            and torch.equal(mine["group"], theirs["group"])
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """One stack of several that are compatible."""
        own = {
            name: parts[0]._own[name]
            if name == "group"
            else torch.cat([part._own[name] for part in parts])
            for name in NAMES
        }
        return cls(**own)

    def trained_names(self) -> frozenset[str]:
        """Those of `tensors` that training moves."""
        return frozenset()

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from."""
        return dict(self._own)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = copy.copy(self)
        made._own = {name: tensors[name] for name in NAMES}
        made.device = made._own["slope"].device
        return made

    def state(self) -> MemberState:
        return MemberState(self.kind, {}, {name: as_array(self._own[name]) for name in NAMES})

    @classmethod
    def restore(cls, state: MemberState) -> Self:
        """Members from a saved state; anything missing or misshapen is named."""
        return cls(**{name: read_state_array(state, name) for name in NAMES})


def _depth(left: list[int], right: list[int]) -> int:
    """The most steps from the root to a cell."""
    depth = [0] * len(left)
    for node, children in enumerate(zip(left, right, strict=True)):
        for child in children:
            if child != node:
                depth[child] = depth[node] + 1
    return max(depth)
