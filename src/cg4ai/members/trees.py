"""Stacked decision trees and sums of trees as plain arrays, evaluated level by level.

Members made from scikit-learn models come from `cg4ai.members.conversion.from_sklearn`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.members.checks import (
    as_array,
    checked_indices,
    checked_inputs,
    checked_size,
    frozen_tensor,
    in_chunks,
    state_array,
    state_field,
)
from cg4ai.records import IntArray, MemberState

Link = Literal["identity", "softmax"]
LINKS = ("identity", "softmax")
ARRAYS = ("feature", "threshold", "left", "right", "value", "initial", "factor")
TREE_CHUNK = 2**21  # (tree, input) pairs followed at a time


class TreeMembers:
    """Each member is `link(initial + factor * sum over its trees of the value of the leaf)`.

    `feature`, `threshold`, `left`, `right` are (count, trees, nodes) and `value` is
    (count, trees, nodes, r). Node 0 is the root; an input goes left where
    `x[feature] <= threshold`. A leaf points to itself on both sides, any other node to later
    nodes; padding is made of leaves and of trees that are one leaf of value zero. A mean over T
    trees has `factor` (count,) 1 / T, boosting its learning rate; `initial` is (count, r).
    With `single_precision` inputs are rounded to float32 before they are compared, as
    scikit-learn does.
    """

    kind = "tree"
    differentiable = False

    def __init__(
        self,
        feature: Any,
        threshold: Any,
        *,
        left: Any,
        right: Any,
        value: Any,
        input_size: int,
        initial: Any = None,
        factor: Any = None,
        link: Link = "identity",
        single_precision: bool = False,
    ) -> None:
        self.feature = frozen_tensor(feature, "feature", torch.int64)
        self.threshold = frozen_tensor(threshold, "threshold")
        self.left = frozen_tensor(left, "left", torch.int64)
        self.right = frozen_tensor(right, "right", torch.int64)
        self.value = frozen_tensor(value, "value")
        self.device = self.value.device
        if self.value.ndim != 4 or 0 in self.value.shape[1:]:
            raise InvalidInput(
                f"value must be (count, trees, nodes, outputs), got {tuple(self.value.shape)}"
            )
        count, size = self.value.shape[0], self.value.shape[3]
        zeros, ones = self.value.new_zeros(count, size), self.value.new_ones(count)
        self.initial = zeros if initial is None else frozen_tensor(initial, "initial")
        self.factor = ones if factor is None else frozen_tensor(factor, "factor")
        self.input_size = checked_size(input_size, "input_size")
        if link not in LINKS:
            raise InvalidInput(
                f"unknown link {link!r}{did_you_mean(str(link), LINKS)}; use {' or '.join(LINKS)}"
            )
        self.link: Link = link
        self.single_precision = bool(single_precision)
        self._check()
        self._flatten()
        self.depth = self._depth()

    def _check(self) -> None:
        count, trees, nodes, size = self.value.shape
        for name, shape in (
            *((name, (count, trees, nodes)) for name in ARRAYS[:4]),
            ("initial", (count, size)),
            ("factor", (count,)),
        ):
            if tuple(getattr(self, name).shape) != shape:
                raise InvalidInput(
                    f"{name} must be {shape}, got {tuple(getattr(self, name).shape)}"
                )
        node = torch.arange(nodes, device=self.device)
        leaf = (self.left == node) & (self.right == node)
        later = (self.left > node) & (self.right > node)
        inside = (self.left < nodes) & (self.right < nodes)
        if not bool(((leaf | later) & inside).all()):
            raise InvalidInput(
                "left and right must point to later nodes of their tree, or, in a leaf, to itself"
            )
        if not bool(((self.feature >= 0) & (self.feature < self.input_size)).all()):
            raise InvalidInput(f"feature must name inputs 0..{self.input_size - 1} in every node")

    def _flatten(self) -> None:
        """Flat copies with absolute node numbers."""
        count, trees, nodes, size = self.value.shape
        offset = (torch.arange(count * trees, device=self.device) * nodes).view(count, trees, 1)
        self._roots = offset.view(count, trees)
        self._children = torch.stack([self.left + offset, self.right + offset], dim=-1).flatten()
        self._feature, self._threshold = self.feature.flatten(), self.threshold.flatten()
        self._leaf_values = self.value.view(-1, size)

    def _depth(self) -> int:
        """Of the deepest tree."""
        depth, frontier = 0, self._roots.flatten()
        while len(frontier := frontier[self._children[2 * frontier] != frontier]):
            frontier = torch.unique(self._children[torch.cat([2 * frontier, 2 * frontier + 1])])
            depth += 1
        return depth

    @property
    def output_size(self) -> int:
        return self.value.shape[3]

    def __len__(self) -> int:
        return self.value.shape[0]

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size) float64, without gradients."""
        x = checked_inputs(inputs, self.input_size, self.device).detach()
        if not torch.compiler.is_compiling() and not bool(torch.isfinite(x).all()):
            raise InvalidInput("trees need finite inputs; fill in missing values first")
        if self.single_precision:
            x = x.float().double()
        trees = self.value.shape[1]
        input_step = max(1, min(4096, TREE_CHUNK // trees))
        member_step = max(1, TREE_CHUNK // (trees * input_step))

        def evaluate(members: slice, rows: slice) -> Tensor:
            return self._evaluate(members, x[rows])

        return in_chunks(evaluate, len(self), x.shape[0], steps=(member_step, input_step), axis=1)

    def _evaluate(self, members: slice, x: Tensor) -> Tensor:
        roots = self._roots[members]
        count, trees = roots.shape
        n, size = x.shape[0], self.output_size
        flat = x.contiguous().view(-1)
        row = (torch.arange(n, device=x.device) * self.input_size).view(1, n, 1)
        node = roots.view(count, 1, trees).expand(count, n, trees)
        for _ in range(self.depth):
            right = flat[row + self._feature[node]] > self._threshold[node]
            node = self._children[2 * node + right]
        sums = functional.embedding_bag(node.reshape(-1, trees), self._leaf_values, mode="sum")
        raw = sums.view(count, n, size) * self.factor[members].view(-1, 1, 1)
        raw = raw + self.initial[members].unsqueeze(1)
        return raw.softmax(-1) if self.link == "softmax" else raw

    def _rebuild(self, arrays: dict[str, Tensor]) -> Self:
        return type(self)(
            arrays["feature"],
            arrays["threshold"],
            left=arrays["left"],
            right=arrays["right"],
            value=arrays["value"],
            input_size=self.input_size,
            initial=arrays["initial"],
            factor=arrays["factor"],
            link=self.link,
            single_precision=self.single_precision,
        )

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from."""
        return {name: getattr(self, name) for name in ARRAYS}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = copy.copy(self)
        for name in ARRAYS:
            setattr(made, name, tensors[name])
        made.device = made.value.device
        made._flatten()
        return made

    def examine(self) -> None:
        """Check tensors that came by `with_tensors` from elsewhere, and see how deep they go."""
        self._check()
        self.depth = self._depth()

    def take(self, indices: IntArray) -> Self:
        positions = checked_indices(indices, len(self), self.device)
        return self._rebuild({name: array[positions] for name, array in self.tensors().items()})

    def to(self, device: torch.device | str) -> Self:
        return self._rebuild({name: array.to(device) for name, array in self.tensors().items()})

    def compatible(self, other: Self) -> bool:
        """Whether both can be one stack; numbers of trees and nodes may differ."""
        sizes = (self.input_size, self.output_size, self.link, self.single_precision, self.device)
        return sizes == (
            other.input_size,
            other.output_size,
            other.link,
            other.single_precision,
            other.device,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """One stack of several that are compatible, padded to the largest trees."""
        trees = max(part.value.shape[1] for part in parts)
        nodes = max(part.value.shape[2] for part in parts)
        padded = [part._padded(trees, nodes) for part in parts]
        joined = {name: torch.cat([arrays[name] for arrays in padded]) for name in ARRAYS}
        return parts[0]._rebuild(joined)

    def _padded(self, trees: int, nodes: int) -> dict[str, Tensor]:
        count, old_trees, old_nodes, size = self.value.shape
        arrays = self.tensors()
        self_loops = torch.arange(nodes, device=self.device).expand(count, trees, nodes)
        for name in ("feature", "threshold", "left", "right"):
            pad = self_loops if name in ("left", "right") else torch.zeros_like(self_loops)
            grown = pad.to(arrays[name].dtype, copy=True).contiguous()
            grown[:, :old_trees, :old_nodes] = arrays[name]
            arrays[name] = grown
        value = self.value.new_zeros(count, trees, nodes, size)
        value[:, :old_trees, :old_nodes] = self.value
        return {**arrays, "value": value}

    def state(self) -> MemberState:
        config = {
            "input_size": self.input_size,
            "link": self.link,
            "single_precision": self.single_precision,
        }
        arrays = {name: as_array(array) for name, array in self.tensors().items()}
        return MemberState(self.kind, config, arrays)

    @classmethod
    def restore(cls, state: MemberState) -> Self:
        """Members from a saved state; anything missing or misshapen is named."""
        arrays: dict[str, NDArray[Any]] = {name: state_array(state, name) for name in ARRAYS}
        for name in ("feature", "left", "right"):
            if not np.issubdtype(arrays[name].dtype, np.integer):
                raise InvalidInput(
                    f"saved tree members: array {name!r} must hold integers, "
                    f"got {arrays[name].dtype}"
                )
        return cls(
            arrays["feature"],
            arrays["threshold"],
            left=arrays["left"],
            right=arrays["right"],
            value=arrays["value"],
            input_size=state_field(state, "input_size", int),
            initial=arrays["initial"],
            factor=arrays["factor"],
            link=state_field(state, "link", str),
            single_precision=state_field(state, "single_precision", bool),
        )
