"""Networks with shapes in their features by the signs of weights: trained so, finished as plain.

Units of a hidden layer are of sorts: some may do what the outputs may (they rise where outputs
rise), some the opposite, and some know nothing of the features that are bound. Which sign a weight
may have follows from what its two ends may do (`members.moves`), whatever the depth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members import slopes as reach
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers
from cg4ai.members.slopes import FREE, Moves
from cg4ai.protocols import ArchitectureDefaults, Members, Parameters
from cg4ai.records import IntArray
from cg4ai.rules.shapes import Curvature, Shape

SHARES = (0.4, 0.4, 0.2)  # of units that do as outputs do, the opposite, and without the features


@dataclass(frozen=True, eq=False)
class SignedArchitecture(ArchitectureDefaults):
    """`inner` with weights of such signs that its outputs keep all `shapes`, at every input.

    Parameters are those of `inner`, of which weights that must have a sign lose their own; the
    last layer gives differences of scores where the shapes are about classes. `codes` says of
    every weight which sign it may have: 1, -1, 0 (it is zero) or FREE.
    """

    inner: NetworkArchitecture
    shapes: tuple[Shape, ...]
    codes: dict[str, IntArray] = field(init=False, repr=False)
    _cache: dict[Any, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "codes", self._coded())
        object.__setattr__(self, "_cache", {})

    def _check(self) -> None:
        inner = self.inner
        curved = [one for one in self.shapes if isinstance(one, Curvature)]
        if inner.hidden and inner.activation == "gelu":
            raise InvalidInput(
                f"{self.shapes[0].name} needs a monotone activation, and gelu is not: use relu"
                f"{'' if curved else ' or tanh'}",
                code="unsupported",
            )
        if curved and inner.hidden and inner.activation != "relu":
            raise InvalidInput(
                f"{curved[0].name} needs activation='relu', which is convex; {inner.activation} "
                "is not",
                code="unsupported",
            )
        if inner.output == "grouped":
            raise InvalidInput(
                f"{self.shapes[0].name} is not for outputs in several groups", code="unsupported"
            )
        if curved and inner.softmax_groups:
            raise InvalidInput(
                f"{curved[0].name}: a softmax keeps no curvature; set scores='logit', or leave it "
                "out",
                code="unsupported",
            )
        for shape in self.shapes:
            shape.check(inner.input_size, inner.output_size)
        self._check_classes()

    def _check_classes(self) -> None:
        size, first = self.output_size, self.shapes[0]
        if self.of_classes:
            first.differences(size)  # says if it must be told whose score it is about
        if not self.of_classes:
            ordered = [shape.name for shape in self.shapes if shape.ordered]
            if ordered:
                raise InvalidInput(
                    f"{ordered[0]} is about classes in order; outputs are numbers",
                    code="unsupported",
                )
            return
        if not self.of_several:
            return
        if any(shape.ordered for shape in self.shapes):
            raise InvalidInput(
                f"{first.name} and {self.shapes[1].name} are about one class and about classes in "
                "order, which one network cannot keep together; ask for one of the two",
                code="infeasible",
            )
        left = self._targets()[..., :2].any(axis=(0, 2))
        if not left.all():
            raise InvalidInput(
                f"{first.name} and {self.shapes[1].name} ask for opposite things of feature "
                f"{int(np.flatnonzero(~left)[0])}: no class could move with it; leave one out",
                code="infeasible",
            )

    @property
    def of_several(self) -> bool:
        """Whether shapes are about different classes: then each score has its own moves.

        The score of a bound class rises and all others fall, so that its differences rise.
        """
        if not self.of_classes:
            return False
        rows = [shape.differences(self.output_size) for shape in self.shapes]
        return any(not np.array_equal(rows[0], one) for one in rows)

    @property
    def of_classes(self) -> bool:
        """Whether differences of scores have the shapes, not scores themselves."""
        return bool(self.inner.softmax_groups) or any(shape.logits for shape in self.shapes)

    @property
    def input_size(self) -> int:
        return self.inner.input_size

    @property
    def output_size(self) -> int:
        return self.inner.output_size

    @property
    def softmax_groups(self) -> tuple[int, ...]:
        return self.inner.softmax_groups

    def _targets(self) -> Moves:
        """(m, d, 4): what each output, or each difference of scores, may do."""
        if self.of_several:
            made = np.ones((self.output_size, self.input_size, 4), bool)
            for shape in self.shapes:
                own = reach.find_allowed_moves([shape], self.input_size)
                bound = shape.differences(self.output_size).sum(axis=0) > 0
                made &= np.where(bound[:, None, None], own, own[..., reach.OPPOSITE])
            return made
        if self.of_classes:
            one = reach.find_allowed_moves(self.shapes, self.input_size)
            return np.repeat(one[None], self.output_size - 1, axis=0)
        return reach.find_output_moves(self.shapes, self.output_size, self.input_size)

    def _coded(self) -> dict[str, IntArray]:
        inner, targets = self.inner, self._targets()
        inputs = reach.build_input_moves(self.input_size)
        sources, codes = inputs, {}
        for layer, width in enumerate(inner.hidden):
            units = _sorts(targets)[_assigned(targets, width, inner.activation)]
            code = reach.find_permitted_signs(units, sources, inner.activation)
            codes[f"weight_{layer}"] = code
            rising, falling = (code == 1) | (code == FREE), (code == -1) | (code == FREE)
            sources = reach.apply_activation(
                reach.propagate_moves(rising, falling, sources), inner.activation
            )
        codes[f"weight_{inner.depth}"] = reach.find_permitted_signs(targets, sources)
        if inner.skip:
            codes["skip"] = reach.find_permitted_signs(targets, inputs)
        return codes

    def _masks(self, like: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """For each weight 1 where it is free, and its sign where it has one."""
        key = (like.dtype, like.device)
        if key not in self._cache:
            with torch.inference_mode(False):
                self._cache[key] = {
                    name: (
                        torch.as_tensor(code == FREE).to(like),
                        torch.as_tensor(np.where(code == FREE, 0, code)).to(like),
                    )
                    for name, code in self.codes.items()
                }
        masks: dict[str, tuple[Tensor, Tensor]] = self._cache[key]
        return masks

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        """As of `inner`; what adds up with one sign is made smaller by the root of how many."""
        parameters = self.inner.initialise(count, generator)
        last = f"weight_{self.inner.depth}"
        for name, code in self.codes.items():
            value = parameters[name][:, : len(code)]
            if name == last or not name.endswith("_0"):
                signed = np.where(code == FREE, 0, np.abs(code))
                several = np.maximum(1, signed.sum(axis=1, keepdims=True))
                factor = np.where(signed, 1 / np.sqrt(several), 1.0)
                value = value * torch.as_tensor(factor, dtype=value.dtype)
            parameters[name] = value
        return parameters

    def plain(self, parameters: Parameters) -> Parameters:
        """Parameters of `inner`, of the signs that keep the shapes."""
        made = dict(parameters)
        masks = self._masks(parameters["weight_0"])
        for name, (free, sign) in masks.items():
            value = parameters[name]
            made[name] = value * free + value.abs() * sign
        if self.of_classes:
            for name in (f"weight_{self.inner.depth}", "skip"):
                if name in made:
                    made[name] = self.scores(made[name])
        return made

    def scores(self, differences: Tensor) -> Tensor:
        """(count, m, width) -> (count, m + 1, width): scores with exactly ordered entries."""
        if self.of_several:
            return differences  # they are scores already
        zero = torch.zeros_like(differences[:, :1])
        shape = self.shapes[0]
        if shape.ordered:
            levels = [zero]
            for step in range(differences.shape[1]):  # one after another: sums rise in rounding too
                levels.append(levels[-1] + differences[:, step : step + 1])
            return torch.cat(levels, dim=1)
        chosen = int(np.argmax(shape.differences(self.output_size)[0]))
        return torch.cat([-differences[:, :chosen], zero, -differences[:, chosen:]], dim=1)

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d), or (count, n, d) with inputs of each member's own -> (count, n, output_size)."""
        return self.inner.forward(self.plain(parameters), inputs)

    def members(self, parameters: Parameters) -> NetworkMembers:
        """Plain networks, whose weights have the signs."""
        return self.inner.members(self.plain({n: v.double() for n, v in parameters.items()}))

    def parameters(self, members: Members) -> Parameters | None:
        """Those of plain networks of the shape of `inner` that have these signs already."""
        known = self.inner.parameters(members)
        if known is None:
            return None
        if self.of_classes:
            for name in (f"weight_{self.inner.depth}", "skip"):
                if name in known:
                    known[name] = self._differences(known[name])
        for name, code in self.codes.items():
            sign = torch.as_tensor(code, device=known[name].device)
            wrong = (sign != FREE) & (known[name] * sign < 0) | (sign == 0) & (known[name] != 0)
            if bool(wrong.any()):
                return None
        return known

    def _differences(self, scores: Tensor) -> Tensor:
        if self.of_several:
            return scores
        rows = self.shapes[0].differences(self.output_size)
        made: Tensor = torch.as_tensor(rows, dtype=scores.dtype, device=scores.device) @ scores
        return made

    def scale_outputs(self, parameters: Parameters, factors: Tensor) -> Parameters:
        """Each member's linear outputs times its factor (count,), which keeps signs."""
        return self.inner.scale_outputs(parameters, factors)

    def initialise_near(self, parameters: Parameters, slopes: Any, offsets: Any) -> Parameters:
        """As they are: slopes that are wanted may have other signs than the shapes allow."""
        return parameters


def _sorts(targets: Moves) -> Moves:
    """(sorts, d, 4): for each kind of output what it may do, and its opposite; last, only what
    all of them and their opposites may."""
    kinds = np.unique(targets, axis=0)
    pairs = np.concatenate([np.stack([kind, kind[..., reach.OPPOSITE]]) for kind in kinds])
    return np.concatenate([pairs, pairs.all(axis=0, keepdims=True)])


def _assigned(targets: Moves, width: int, activation: str) -> IntArray:
    """(width,): the sort of each unit, in the shares that each sort has.

    A relu that moves bends up. So units that must not bend up with a feature do not know it, and
    sorts of which nothing else is left have no share.
    """
    sorts = _sorts(targets)
    kinds = (len(sorts) - 1) // 2
    like, opposite, without = SHARES
    shares = np.array([like / kinds, opposite / kinds] * kinds + [without])
    if activation == "relu":
        left = sorts & sorts[..., [reach.UP]]
        idle = (left[:-1] <= left[-1]).all(axis=(1, 2))
        shares[:-1][idle] = 0.0
    if not sorts[-1].any():  # every feature is bound: units without them are constants
        shares[-1] = 0.0
    ends = np.round(np.cumsum(shares / shares.sum()) * width).astype(np.int64)
    return np.searchsorted(ends, np.arange(width), side="right")
