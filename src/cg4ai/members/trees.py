"""Stacked decision trees and sums of trees as plain arrays, evaluated level by level.

Members made from fitted models of other libraries come from `cg4ai.members.conversion`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.data.arrays import is_traced
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.members import slopes
from cg4ai.members.checks import (
    as_array,
    check_indices,
    check_inputs,
    check_size,
    evaluate_in_chunks,
    freeze_tensor,
    read_state_array,
    read_state_field,
)
from cg4ai.members.single import plan_trees
from cg4ai.members.structure import (
    EXACT,
    Ends,
    Hulls,
    build_probability_hulls,
    find_leaf_hulls,
    find_split_ends,
)
from cg4ai.protocols import MemberDefaults, Single
from cg4ai.records import Array, IntArray, MemberState
from cg4ai.rules.shapes import Shape

Link = Literal["identity", "softmax"]
LINKS = ("identity", "softmax")
ARRAYS = ("feature", "threshold", "left", "right", "value", "initial", "factor")
NODEWISE = ("feature", "threshold", "left", "right")
OPTIONAL = ("missing", "subset", "subsets")
WHOLE = ("feature", "left", "right", *OPTIONAL)
BITS = 64  # categories in one word of a subset
TOGETHER = 5  # levels that all inputs are followed through, reached a leaf or not
STEPS = 3  # levels between looks at which are still under way
TREE_CHUNK = 2**17  # (tree, input) pairs followed at a time: their numbers stay in cache


class TreeMembers(MemberDefaults):
    """Each member is `link(initial + factor * sum over its trees of the value of the leaf)`.

    `feature`, `threshold`, `left`, `right` are (count, trees, nodes) and `value` is
    (count, trees, nodes, r). Node 0 is the root; an input goes left where
    `x[feature] <= threshold`. A leaf points to itself on both sides, any other node to later
    nodes; padding is made of leaves and of trees that are one leaf of value zero. A mean over T
    trees has `factor` (count,) 1 / T, boosting its learning rate; `initial` is (count, r).
    With `single_precision` inputs are rounded to float32 before they are compared, as
    scikit-learn does.

    `missing` (count, trees, nodes) says where NaN goes: 0 left, 1 right, -1 nowhere, so that NaN
    is refused in that input; without it, in all. `subset` (count, trees, nodes) makes a node ask
    for a category: where it is k >= 0, an input whose whole part c >= 0 is in the member's subset
    k goes left and any other right. Bit c % 64 of `subsets[member, k, c // 64]` says whether c is
    in it; `subsets` is (count, subsets, words) int64.
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
        missing: Any = None,
        subset: Any = None,
        subsets: Any = None,
        link: Link = "identity",
        single_precision: bool = False,
    ) -> None:
        self.feature = freeze_tensor(feature, "feature", torch.int64)
        self.threshold = freeze_tensor(threshold, "threshold")
        self.left = freeze_tensor(left, "left", torch.int64)
        self.right = freeze_tensor(right, "right", torch.int64)
        self.value = freeze_tensor(value, "value")
        self.device = self.value.device
        if self.value.ndim != 4 or 0 in self.value.shape[1:]:
            raise InvalidInput(
                f"value must be (count, trees, nodes, outputs), got {tuple(self.value.shape)}",
                code="shape",
            )
        count, size = self.value.shape[0], self.value.shape[3]
        zeros, ones = self.value.new_zeros(count, size), self.value.new_ones(count)
        self.initial = zeros if initial is None else freeze_tensor(initial, "initial")
        self.factor = ones if factor is None else freeze_tensor(factor, "factor")
        if (subset is None) != (subsets is None):
            raise InvalidInput(
                "subset and subsets go together: give both or neither", code="conflict"
            )
        self.missing = None if missing is None else freeze_tensor(missing, "missing", torch.int64)
        self.subset = None if subset is None else freeze_tensor(subset, "subset", torch.int64)
        self.subsets = None if subsets is None else freeze_tensor(subsets, "subsets", torch.int64)
        self.input_size = check_size(input_size, "input_size")
        if link not in LINKS:
            raise InvalidInput(
                f"unknown link {link!r}{did_you_mean(str(link), LINKS)}; use {' or '.join(LINKS)}",
                code="unknown-name",
            )
        self.link: Link = link
        self.single_precision = bool(single_precision)
        self._check()
        self._flatten()
        self.depth = self._depth()

    def _check(self) -> None:
        count, trees, nodes, size = self.value.shape
        for name, shape in (
            *((name, (count, trees, nodes)) for name in NODEWISE),
            *((name, (count, trees, nodes)) for name in OPTIONAL[:2]),
            ("initial", (count, size)),
            ("factor", (count,)),
        ):
            if getattr(self, name) is None:
                continue
            if tuple(getattr(self, name).shape) != shape:
                raise InvalidInput(
                    f"{name} must be {shape}, got {tuple(getattr(self, name).shape)}", code="shape"
                )
        node = torch.arange(nodes, device=self.device)
        leaf = (self.left == node) & (self.right == node)
        later = (self.left > node) & (self.right > node)
        inside = (self.left < nodes) & (self.right < nodes)
        if not bool(((leaf | later) & inside).all()):
            raise InvalidInput(
                "left and right must point to later nodes of their tree, or, in a leaf, to itself",
                code="range",
            )
        if not bool(((self.feature >= 0) & (self.feature < self.input_size)).all()):
            raise InvalidInput(
                f"feature must name inputs 0..{self.input_size - 1} in every node", code="range"
            )
        self._check_categories()

    def _check_categories(self) -> None:
        if self.missing is not None and not bool((self.missing.abs() <= 1).all()):
            raise InvalidInput(
                "missing must be 0 (left), 1 (right) or -1 (refused) in every node", code="range"
            )
        if self.subset is None or self.subsets is None:
            return
        if self.subsets.ndim != 3 or len(self.subsets) != len(self) or 0 in self.subsets.shape[1:]:
            raise InvalidInput(
                f"subsets must be ({len(self)}, subsets, words), got {tuple(self.subsets.shape)}",
                code="shape",
            )
        if not bool(((self.subset >= -1) & (self.subset < self.subsets.shape[1])).all()):
            raise InvalidInput(
                f"subset must be -1 or one of 0..{self.subsets.shape[1] - 1}", code="range"
            )

    def _flatten(self) -> None:
        """Flat copies with absolute node numbers, half as long where these are small enough."""
        count, trees, nodes, size = self.value.shape
        whole = torch.int32 if 2 * count * trees * nodes < 2**31 else torch.int64
        offset = (torch.arange(count * trees, device=self.device) * nodes).view(count, trees, 1)
        self._roots = offset.view(count, trees).to(whole)
        children = torch.stack([self.left + offset, self.right + offset], dim=-1).flatten()
        own = torch.arange(count * trees * nodes, device=self.device)
        self._inner, self._children = children[::2] != own, children.to(whole)
        self._feature, self._threshold = self.feature.flatten().to(whole), self.threshold.flatten()
        self._leaf_values = self.value.view(-1, size).T.contiguous()
        self._missing = None if self.missing is None else self.missing.flatten()
        self._first_word = self._words = None
        if self.subset is not None and self.subsets is not None:
            _, sets, words = self.subsets.shape
            own = (torch.arange(count, device=self.device) * sets).view(count, 1, 1)
            first = torch.where(self.subset >= 0, (self.subset + own) * words, -1)
            self._first_word, self._words = first.flatten(), self.subsets.flatten()

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
        x = check_inputs(inputs, self.input_size, self.device).detach()
        if not is_traced():
            self._check_finite(x)
        if self.single_precision:
            x = x.float().double()
        trees = self.value.shape[1]
        input_step = max(1, min(4096, TREE_CHUNK // trees))
        member_step = max(1, TREE_CHUNK // (trees * input_step))

        def evaluate(members: slice, rows: slice) -> Tensor:
            return self._evaluate(members, x[rows])

        return evaluate_in_chunks(
            evaluate, len(self), x.shape[0], steps=(member_step, input_step), axis=1
        )

    def single(self) -> Single | None:
        """None of trees that ask for categories. Where inputs miss, outputs are no numbers."""
        if self.subset is not None:
            return None
        walk = plan_trees(
            roots=self._roots.numpy(),
            feature=self._feature.numpy(),
            threshold=self._threshold.numpy(),
            children=self._children.numpy(),
            depth=self.depth,
        )
        values, factor = self._leaf_values.numpy(), self.factor[:, None].numpy()
        initial, single = self.initial.numpy(), self.single_precision

        def compute_outputs(x: Array) -> tuple[Array, Array | None]:
            leaves = walk(x.astype(np.float32).astype(np.float64) if single else x)
            raw = values[:, leaves].sum(axis=-1).T * factor + initial
            if math.isnan(x.dot(x)):
                raw[:] = math.nan
            if self.link == "identity":
                return raw, None
            shares = np.exp(raw - raw.max(axis=1, keepdims=True))
            return shares / shares.sum(axis=1, keepdims=True), None

        return compute_outputs

    @property
    def takes_missing(self) -> bool:
        """Whether inputs may be NaN, as far as `find_missing_allowed` says."""
        return self.missing is not None

    def find_missing_allowed(self) -> Tensor:
        """(input_size,) bool: the inputs that may be NaN, since every node there knows its way."""
        node = torch.arange(self.left.shape[2], device=self.device)
        lost = self.left != node
        if self.missing is not None:
            lost = lost & (self.missing < 0)
        allowed = torch.ones(self.input_size, dtype=torch.bool, device=self.device)
        allowed[self.feature[lost]] = False
        return allowed

    def _check_finite(self, x: Tensor) -> None:
        if bool(torch.isfinite(x).all()):
            return
        if self.missing is None:
            raise InvalidInput(
                "trees need finite inputs; fill in missing values first", code="missing-values"
            )
        if bool(torch.isinf(x).any()):
            raise InvalidInput(
                "trees need finite inputs or NaN, got infinite ones", code="not-finite"
            )
        absent = torch.isnan(x).any(0) & ~self.find_missing_allowed()
        if bool(absent.any()):
            raise InvalidInput(
                f"input {int(absent.nonzero()[0])} is missing (NaN) and these trees do not say "
                "where it goes; fill in missing values, or fit the trees to rows that lack it",
                code="missing-values",
            )

    def _right(self, value: Tensor, node: Tensor, *, some_missing: bool) -> Tensor:
        """Which inputs go right, given the value that their node asks for."""
        right = value > self._threshold.index_select(0, node)
        if self._first_word is not None and self._words is not None and self.subsets is not None:
            first, bits = self._first_word.index_select(0, node), BITS * self.subsets.shape[2]
            known = (value >= 0) & (value < bits)  # false for NaN
            category = torch.where(known, value, 0.0).long()
            word = self._words.index_select(0, first.clamp_min(0) + category // BITS)
            inside = known & ((word >> (category % BITS)) & 1).bool()
            right = torch.where(first >= 0, ~inside, right)
        if some_missing and self._missing is not None:
            astray = self._missing.index_select(0, node) == 1
            right = torch.where(torch.isnan(value), astray, right)
        return right

    def _evaluate(self, members: slice, x: Tensor) -> Tensor:
        roots = self._roots[members]
        count, trees = roots.shape
        n = x.shape[0]
        flat = x.contiguous().view(-1)
        row = torch.arange(n, device=x.device, dtype=roots.dtype) * self.input_size
        start = row.view(1, n, 1).expand(count, n, trees).flatten()
        node = roots.view(count, 1, trees).expand(count, n, trees).flatten()
        some_missing = is_traced() or bool(torch.isnan(flat).any())
        together = self.depth if is_traced() else min(self.depth, TOGETHER)
        for _ in range(together):
            node = self._next(node, start, flat, some_missing=some_missing)
        if together < self.depth:
            node = self._followed(node, start, flat, some_missing=some_missing)
        # one output after the other: embedding_bag takes longer than all levels together
        leaves = (one.index_select(0, node) for one in self._leaf_values)
        each = [one.view(count, n, trees).sum(-1) for one in leaves]
        raw = torch.stack(each, dim=-1) * self.factor[members].view(-1, 1, 1)
        raw = raw + self.initial[members].unsqueeze(1)
        return raw.softmax(-1) if self.link == "softmax" else raw

    def _next(self, node: Tensor, start: Tensor, flat: Tensor, *, some_missing: bool) -> Tensor:
        """One level further; `index_select` takes a quarter of the time of plain indexing."""
        value = flat.index_select(0, start + self._feature.index_select(0, node))
        right = self._right(value, node, some_missing=some_missing)
        return self._children.index_select(0, 2 * node + right)

    def _followed(self, node: Tensor, start: Tensor, flat: Tensor, *, some_missing: bool) -> Tensor:
        """The leaves that (member, input, tree) pairs end in: only those under way are followed.

        Boosted trees are deep in few places: of 15 levels an input passes six.
        """
        live = self._inner.index_select(0, node).nonzero().squeeze(1)
        begun, at = start.index_select(0, live), node.index_select(0, live)
        while len(live):
            for _ in range(STEPS):
                at = self._next(at, begun, flat, some_missing=some_missing)
            node.index_copy_(0, live, at)
            under_way = self._inner.index_select(0, at).nonzero().squeeze(1)
            live, begun, at = (one.index_select(0, under_way) for one in (live, begun, at))
        return node

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
            **{name: arrays.get(name) for name in OPTIONAL},
            link=self.link,
            single_precision=self.single_precision,
        )

    def trained_names(self) -> frozenset[str]:
        """Those of `tensors` that training moves."""
        return frozenset({"value", "initial"})

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from."""
        present = [name for name in OPTIONAL if getattr(self, name) is not None]
        return {name: getattr(self, name) for name in (*ARRAYS, *present)}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = copy.copy(self)
        for name in self.tensors():
            setattr(made, name, tensors[name])
        made.device = made.value.device
        made._flatten()
        return made

    def examine(self) -> None:
        """Check tensors that came by `with_tensors` from elsewhere, and see how deep they go."""
        self._check()
        self.depth = self._depth()

    def take(self, indices: IntArray) -> Self:
        positions = check_indices(indices, len(self), self.device)
        return self._rebuild({name: array[positions] for name, array in self.tensors().items()})

    def to(self, device: torch.device | str) -> Self:
        return self._rebuild({name: array.to(device) for name, array in self.tensors().items()})

    def compatible(self, other: Self) -> bool:
        """Whether both can be one stack; numbers of trees and nodes may differ."""
        same = ("input_size", "output_size", "link", "single_precision", "device")
        return all(getattr(self, name) == getattr(other, name) for name in same)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """One stack of several that are compatible, padded to the largest trees."""
        trees = max(part.value.shape[1] for part in parts)
        nodes = max(part.value.shape[2] for part in parts)
        some = {name for part in parts for name in part.tensors()}
        sizes = [part.subsets.shape[1:] for part in parts if part.subsets is not None]
        largest = tuple(map(max, zip(*sizes, strict=True))) if sizes else (1, 1)
        padded = [part._padded(trees, nodes, largest) for part in parts]
        joined = {name: torch.cat([arrays[name] for arrays in padded]) for name in some}
        return parts[0]._rebuild(joined)

    def _padded(self, trees: int, nodes: int, subsets: tuple[int, ...]) -> dict[str, Tensor]:
        """All arrays, the optional ones too, of these sizes."""
        count, old_trees, old_nodes, size = self.value.shape
        arrays = self.tensors()
        self_loops = torch.arange(nodes, device=self.device).expand(count, trees, nodes)
        nothing = torch.full_like(self_loops, -1)
        for name in (*NODEWISE, "missing", "subset"):
            pad = {"left": self_loops, "right": self_loops, "missing": nothing, "subset": nothing}
            grown = pad.get(name, torch.zeros_like(self_loops)).contiguous().clone()
            if name in arrays:
                grown = grown.to(arrays[name].dtype)
                grown[:, :old_trees, :old_nodes] = arrays[name]
            arrays[name] = grown
        value = self.value.new_zeros(count, trees, nodes, size)
        value[:, :old_trees, :old_nodes] = self.value
        words = torch.zeros(count, *subsets, dtype=torch.int64, device=self.device)
        if self.subsets is not None:
            words[:, : self.subsets.shape[1], : self.subsets.shape[2]] = self.subsets
        return {**arrays, "value": value, "subsets": words}

    def gives_shares(self) -> bool:
        if self.link == "softmax":
            return True
        leaves = self.value * self.factor[:, None, None, None]
        least, most = (self.initial + end.sum(1) for end in (leaves.amin(2), leaves.amax(2)))
        return bool((least >= -EXACT).all() and (most <= 1 + EXACT).all())

    def find_set_forms(self, matrix: Array) -> Sequence[Hulls]:
        if self.link == "softmax":
            return [build_probability_hulls((self.output_size,))]
        return list(find_leaf_hulls(self._arrays()))

    def find_moves(self, shape: Shape) -> Sequence[slopes.Moves]:
        under = self.link == "softmax"
        rows = slopes.find_asked_rows(shape, self.output_size, softmax=under)
        arrays = self._arrays()
        names = [name for name in arrays if name in slopes.TREE_ARRAYS]
        found = [
            slopes.find_tree_moves(
                {name: arrays[name][number] for name in names} | {"input_size": self.input_size},
                rows,
            )
            for number in range(len(self))
        ]
        return [slopes.apply_softmax(one) for one in found] if under else found

    def find_usual_inputs(self) -> Ends:
        """Around their splits."""
        return find_split_ends(self._arrays(), self.input_size)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {name: tensor.cpu().numpy() for name, tensor in self.tensors().items()}

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
        present = [name for name in OPTIONAL if name in state.arrays]
        arrays: dict[str, NDArray[Any]] = {
            name: read_state_array(state, name) for name in (*ARRAYS, *present)
        }
        for name in WHOLE:
            if name in arrays and not np.issubdtype(arrays[name].dtype, np.integer):
                raise InvalidInput(
                    f"saved tree members: array {name!r} must hold integers, "
                    f"got {arrays[name].dtype}",
                    code="type",
                )
        return cls(
            arrays["feature"],
            arrays["threshold"],
            left=arrays["left"],
            right=arrays["right"],
            value=arrays["value"],
            input_size=read_state_field(state, "input_size", int),
            initial=arrays["initial"],
            factor=arrays["factor"],
            **{name: arrays.get(name) for name in OPTIONAL},
            link=read_state_field(state, "link", str),
            single_precision=read_state_field(state, "single_precision", bool),
        )
