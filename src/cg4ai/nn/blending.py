"""Outputs moved towards an anchor's just far enough to keep rules: what every shield does.

`S(f) = f + theta(x, f) (a(x) - f)` lies in the set of outputs that keep the rules, whatever f is.
Layers, shields of members and of whole mixtures differ only in what f and the anchor a are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from cg4ai.data.arrays import is_traced
from cg4ai.records import Array, IntArray, select_prefixed
from cg4ai.rules.guards import Guard

MANY_TERMS = 10**8  # of the slacks of a batch: about a hundredth of a second of one core
Coupled = tuple[tuple[int, ...], ...]
# an input (d,), outputs (m, r) and what computes the anchor's (1, r) -> outputs that keep the rules
# and theta (m,), None where nothing was moved
MoveOne = Callable[[Array, Array, Callable[[], Array]], tuple[Array, Array | None]]


@dataclass(frozen=True)
class _Components:
    """How many there are, and of which each rule (L,) and each output (r,) is part."""

    count: int
    of_rule: Tensor
    of_output: Tensor


@dataclass(frozen=True)
class Rounding:
    """A share `unit` of their size by which outputs are rounded, and whether they came so."""

    unit: float
    came: bool = False


@dataclass(frozen=True, eq=False)
class Place:
    """Inputs (n, d) and, where that is known, for each guard which (n,) are in its region."""

    inputs: Tensor
    inside: Sequence[Tensor] | None = None

    def rows(self, which: Tensor) -> Place:
        inside = None if self.inside is None else [one[which] for one in self.inside]
        return Place(self.inputs[which], inside)


@dataclass(frozen=True, eq=False)
class Blend:
    """The rules that outputs (r,) are moved to keep.

    Outputs that no rule reads stay as they are, and outputs that no chain of rules connects are
    moved independently. `coupled` are further sets of outputs that must be moved together, such as
    those of an equality, or probabilities.
    """

    guards: tuple[Guard, ...]
    output_size: int
    coupled: Coupled = ()

    def slacks(self, inputs: Tensor, outputs: Tensor) -> list[Tensor]:
        """(n, d), (..., n, r) -> for each guard (..., n, L)."""
        return [one.rules.slack(inputs, outputs) for one in self.guards]

    def blend_outputs(
        self, inputs: Tensor, outputs: Tensor, anchor: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(n, d), (..., n, r), (n, r) -> outputs that keep the rules, and theta (..., n).

        While it is traced nothing here branches on numbers.
        """
        if self._prefers_broken(inputs, outputs):
            each = [one.shares_of_broken(inputs, outputs, anchor) for one in self.guards]
            each.append(outputs.new_zeros(*outputs.shape[:-1], 1))
            share = self._spread(each)
        else:
            share = self._share(inputs, outputs, anchor, self.slacks(inputs, outputs))
        return _selected(outputs, anchor, share), share.amax(-1)

    def _prefers_broken(self, inputs: Tensor, outputs: Tensor) -> bool:
        """Whether a step of training shall look for the rules that are broken first.

        On a CPU, where the slacks of all take most of its time; elsewhere looking would wait.
        """
        if is_traced() or not torch.is_grad_enabled() or inputs.device.type != "cpu":
            return False
        terms = self._separable_terms * outputs[..., 0].numel()
        return terms >= MANY_TERMS and self._parts(outputs.device) is None

    @cached_property
    def _separable_terms(self) -> int:
        """Of all rules together for one input; 0 where some are not separable."""
        if not all(one.rules.is_separable for one in self.guards):
            return 0
        own = sum(len(one.sizes) for one in self.guards)
        return own * (self.output_size + self.guards[0].region.size)

    def repair_outputs(
        self, inputs: Tensor, outputs: Tensor, anchor: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The outputs of `moved`, for predictions: where all rules are kept, as is usual, nothing
        else is done. `anchor` gives the anchor's outputs (n, r) where they are needed.
        """
        if is_traced():
            return self.blend_outputs(inputs, outputs, anchor(inputs))[0]
        slacks = self.slacks(inputs, outputs)
        if all(bool(slack.amin() >= 0) for slack in slacks):
            return outputs
        # not a number keeps no rule
        kept = torch.stack([slack.amin(-1) >= 0 for slack in slacks]).all(0)
        rows = (~kept).reshape(-1, len(inputs)).any(0).nonzero()[:, 0]
        if 2 * len(rows) > len(inputs):  # copying so many would take longer than all of them
            return self._quickly(inputs, outputs, anchor(inputs), slacks)
        x, part = inputs[rows], outputs.index_select(-2, rows)
        own = [slack.index_select(-2, rows) for slack in slacks]
        found = self._quickly(x, part, anchor(x), own)
        return outputs.index_copy(outputs.ndim - 2, rows, found)

    def _quickly(
        self, inputs: Tensor, outputs: Tensor, anchor: Tensor, slacks: Sequence[Tensor]
    ) -> Tensor:
        share = self._share(inputs, outputs, anchor, slacks)
        if not torch.is_grad_enabled():
            blended = torch.lerp(outputs, anchor.expand_as(outputs), share)
            if bool(blended.sum().isfinite()):
                return blended  # exact at 0 and 1, and quicker than looking at each
        return _selected(outputs, anchor, share)

    def single(self) -> MoveOne | None:
        """`repair_outputs` and theta for one input, by NumPy; None where a rule has no such way."""
        known = [one.rules.single() for one in self.guards]
        slacks = [one for one in known if one is not None]
        if len(slacks) < len(known):
            return None
        parts = self._parts(torch.device("cpu"))

        def spread(needed: Array) -> Array:
            if parts is None:
                return np.asarray(needed.max(axis=1, keepdims=True))
            moved = np.zeros((parts.count, len(needed)))
            np.maximum.at(moved, parts.of_rule.numpy(), needed.T)
            return np.asarray(moved[parts.of_output.numpy()].T)

        def move(x: Array, y: Array, anchor: Callable[[], Array]) -> tuple[Array, Array | None]:
            own = [slack(x, y) for slack in slacks]
            if all(one.item(one.argmin()) >= 0 for one in own):  # not a number keeps no rule
                return y, None
            towards = anchor()
            needed = [
                guard.shares_of_one(x, mine, slack(x, towards))
                for guard, mine, slack in zip(self.guards, own, slacks, strict=True)
            ]
            share = spread(np.concatenate(needed, axis=1))
            return _blended(y, towards, share), share.max(axis=1)

        def move_together(
            x: Array, y: Array, anchor: Callable[[], Array]
        ) -> tuple[Array, Array | None]:
            """Of one member, by the rules that it breaks alone."""
            if len(y) > 1:
                return move(x, y, anchor)
            share, towards = 0.0, None
            for guard, slack in zip(self.guards, slacks, strict=True):
                own = slack(x, y)
                if own.item(own.argmin()) >= 0:
                    continue
                which = (~(own[0] >= 0)).nonzero()[0]
                towards = anchor() if towards is None else towards
                other = guard.rules.compute_slack_of_some(which, x, towards)
                share = max(share, guard.shares_of_one(x, own[:, which], other, which).max())
            if towards is None:
                return y, None
            return _move_along(y, towards, share), np.array([share])

        return move_together if parts is None and self._separable_terms else move

    def blend_and_round(
        self,
        place: Place,
        outputs: Tensor,
        *,
        anchor: Tensor,
        rounding: Rounding,
        slacks: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """Outputs (n, r) -> those of `blend_outputs`, which keep the rules after rounding as well.

        The anchor is (n, r), or (1, r) where nothing depends on the input. What `blend_outputs`
        leaves alone stays as it is, unless `rounding` is of the outputs that came.
        """
        inputs, inside = place.inputs, place.inside
        known = self.slacks(inputs, outputs) if slacks is None else slacks
        share = self._share(inputs, outputs, anchor, known, inside)
        moved = _selected(outputs, anchor, share)
        with torch.no_grad():  # as far as rounding goes, which has no slope
            each = [
                one.further_shares(inputs, moved, anchor, rounding.unit, own)
                for one, own in self._pairs(inside)
            ]
            further = self._spread(each)
            if not rounding.came:
                further = torch.where(share > 0, further, 0.0)
        return _selected(moved, anchor, further)

    def _pairs(self, inside: Sequence[Tensor] | None) -> list[tuple[Guard, Tensor | None]]:
        known = [None] * len(self.guards) if inside is None else inside
        return list(zip(self.guards, known, strict=True))

    def _share(
        self,
        inputs: Tensor,
        outputs: Tensor,
        anchor: Tensor,
        slacks: Sequence[Tensor],
        inside: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """(..., n, r) or (..., n, 1): how far each output is moved."""
        pairs = zip(self._pairs(inside), slacks, strict=True)
        return self._spread(
            [one.shares(inputs, own, outputs, anchor, near) for (one, near), own in pairs]
        )

    def _spread(self, each: Sequence[Tensor]) -> Tensor:
        """What the rules of each guard need (..., n, L) as what the outputs are moved by."""
        needed = each[0] if len(each) == 1 else torch.cat(list(each), -1)
        parts = self._parts(needed.device)
        if parts is None:
            return needed.amax(-1, keepdim=True)
        nothing = needed.new_zeros(*needed.shape[:-1], parts.count)
        place = parts.of_rule.expand(needed.shape)
        moved = nothing.scatter_reduce(-1, place, needed, "amax")
        return moved.index_select(-1, parts.of_output)

    @cached_property
    def components(self) -> IntArray:
        """(r,): which outputs are moved together; those that stay as they are form the last."""
        sets = np.repeat(np.arange(len(self.coupled)), [len(group) for group in self.coupled])
        members = np.array([one for group in self.coupled for one in group], np.int64)
        shape = (len(self.coupled), self.output_size)
        together = sparse.coo_array((np.ones(len(members), bool), (sets, members)), shape)
        ties = sparse.vstack([sparse.coo_array(self._reads), together], format="coo")
        # outputs are nodes, and so are rules: outputs beside outputs would be their square
        size = self.output_size + ties.shape[0]
        edges = (np.ones(ties.nnz, np.int8), (self.output_size + ties.row, ties.col))
        _, labels = connected_components(sparse.coo_array(edges, (size, size)), directed=False)
        labels = labels[: self.output_size]
        ruled = np.isin(labels, labels[self._reads.any(0)])
        _, numbers = np.unique(np.where(ruled, labels, self.output_size), return_inverse=True)
        return np.asarray(numbers.reshape(-1), np.int64)

    def _parts(self, device: torch.device) -> _Components | None:
        """The components as tensors; None if all outputs are moved together."""
        if device not in self._known:
            numbers, made = self.components, None
            if numbers.any() or not self._reads.any():
                made = _Components(
                    int(numbers.max()) + 1,
                    torch.as_tensor(numbers[self._reads.argmax(1)], device=device),
                    torch.as_tensor(numbers, device=device),
                )
            self._known[device] = made
        return self._known[device]

    @cached_property
    def _reads(self) -> NDArray[np.bool_]:
        """(rules, r): which outputs each rule reads."""
        return np.concatenate([one.find_read_outputs(self.output_size) for one in self.guards])

    @cached_property
    def _known(self) -> dict[torch.device, _Components | None]:
        return {}

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """What slacks are computed from; nothing of rules that are functions in Python."""
        for one in self.guards:
            one.region.bounds()  # computed once, by NumPy: not while torch records a graph
        return {
            f"guard.{number}.{name}": tensor
            for number, one in enumerate(self.guards)
            for name, tensor in one.rules.tensors(device).items()
        }

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Blend:
        """The same with other tensors of these names, which are not looked at."""
        guards = [
            replace(one, rules=one.rules.with_tensors(select_prefixed(tensors, f"guard.{number}.")))
            for number, one in enumerate(self.guards)
        ]
        return replace(self, guards=tuple(guards))


def _selected(outputs: Tensor, anchor: Tensor, share: Tensor) -> Tensor:
    blended = torch.lerp(outputs, anchor.expand_as(outputs), share)
    # at 1 the anchor itself: outputs may hold infinities or no numbers there
    blended = torch.where(share < 1, blended, anchor)
    return torch.where(share > 0, blended, outputs)


def _move_along(outputs: Array, anchor: Array, share: float) -> Array:
    """As `_blended`, with one share of all outputs."""
    if not 0 < share < 1:
        return anchor if share > 0 else outputs
    way = anchor - outputs
    return outputs + share * way if share < 0.5 else anchor - (1 - share) * way


def _blended(outputs: Array, anchor: Array, share: Array) -> Array:
    """As `_selected`, by NumPy: from the nearer end, so that rounding is of its size."""
    way = anchor - outputs
    moved = np.where(share < 0.5, outputs + share * way, anchor - (1 - share) * way)
    return np.where(share > 0, np.where(share < 1, moved, anchor), outputs)
