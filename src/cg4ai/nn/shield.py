"""`Shield`: a layer whose outputs keep rules, for any training loop.

`y + theta(x, y) (a(x) - y)` with the smallest theta that restores every rule and an anchor a that
is found, and proven to keep the rules, when the layer is made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cg4ai.anchors.affine_maps import AffineMap
from cg4ai.anchors.search import check_given
from cg4ai.data.arrays import is_traced
from cg4ai.errors import InvalidInput
from cg4ai.nn.anchoring import (
    ANYWHERE,
    Within,
    build_guards,
    choose_anchor,
    compute_digest,
)
from cg4ai.nn.blending import Blend, Place, Rounding
from cg4ai.nn.layer_rules import Given, check_rules, find_width
from cg4ai.nn.rule_layer import OUTPUT_DTYPES, RuleLayer, on_cpu, working_dtype
from cg4ai.rules.guards import FunctionRules
from cg4ai.rules.regions import Region


class Shield(RuleLayer):
    """Moves outputs (..., r) just far enough towards an anchor to keep rules; others stay as is.

    `rules`: one or several of `Linear`, `Quadratic`, `Concave`, `Probability`, `Margin`, `Range`
    and `Ordered`. A rule holds over its own region, or, where it names none (`inputs=None`), over
    `region`. Without either it holds at every input, and must not depend on it.

    `anchor`: outputs (r,), (slopes (r, d), offsets (r,)) or an `AffineMap` that keeps the rules,
    which is proven. Left out, one is found, near `reference` (of the same kinds, such as the mean
    of the targets) where it is given; `MissingAnchor` says which rule forbids one, and where.

    `within`: rules that outputs keep before, by a `Completion` or an `OutputSet`, and keep after.
    `output_size` is needed where no rule says how many outputs there are.

    >>> cap = Linear(None, [1.0, 1.0], 1.0, "<=", name="cap")
    >>> model = nn.Sequential(nn.Linear(3, 2), Shield(cap))
    """

    anchor_slopes: Tensor
    anchor_offsets: Tensor

    def __init__(
        self,
        rules: Given,
        *,
        region: Region | None = None,
        anchor: Any = None,
        reference: Any = None,
        within: Given = (),
        output_size: int | None = None,
    ) -> None:
        kept, inside = check_rules(rules, "Shield"), check_rules(within, "Shield")
        if not kept:
            raise InvalidInput("a Shield needs one rule or more", code="empty")
        size = find_width([*kept, *inside], output_size)
        with on_cpu():
            guards = build_guards(kept, region=region, output_size=size)
            place = guards[0].region
            before = Within.of(inside, input_size=place.size, output_size=size)
            found = choose_anchor(
                guards, before, given=anchor, reference=reference, output_size=size
            )
        super().__init__(
            input_size=0 if place is ANYWHERE else place.size,
            output_size=size,
            needs_input=not (
                found.map.is_constant and all(one.rules.free_of_inputs for one in guards)
            ),
            digest=compute_digest(guards, before),
        )
        self.requirements, self.region = tuple(kept), region
        self.guards, self.within = guards, before
        self.anchor, self.room = found.map, found.room
        self._region_size = place.size
        self._constant = found.map.is_constant
        self._terms = 3 * size + place.size  # more than any rule sums up
        self._blend = Blend(guards, size, before.tied)
        everywhere = tuple(replace(one, everywhere=True) for one in guards)
        self._blend_everywhere = Blend(everywhere, size, before.tied)
        for name, array in (("slopes", found.map.slopes), ("offsets", found.map.offsets)):
            self.register_buffer(f"anchor_{name}", torch.tensor(array, device="cpu"))
        self._prepare()

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.output_size,)

    def _rounding(self, dtype: torch.dtype, work: torch.dtype) -> Rounding:
        """By which share of its size an output is rounded on its way through the layer."""
        unit = (self._terms + 8) * torch.finfo(work).eps
        if dtype != work:
            unit += 0.5001 * torch.finfo(dtype).eps
        return Rounding(unit, came=work != torch.float64)

    def _anchor_at(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n, r), or (1, r) where nothing depends on the input."""
        offsets = self.anchor_offsets.to(inputs.dtype)
        if not self._constant:
            return torch.addmm(offsets, inputs, self.anchor_slopes.to(inputs.dtype).T)
        return offsets.expand(inputs.shape[0] if self.needs_input else 1, -1)

    def _keep(self, given: Tensor, inputs: Tensor | None, dtype: torch.dtype) -> Tensor:
        work = working_dtype(given.device)
        y = given.to(work)
        if inputs is None:
            blend = self._blend_everywhere
            place = Place(y.new_zeros(y.shape[0], self._region_size))
        else:  # looked at as they came: those rounded less precisely are near by more
            blend = self._blend
            inside = [one.region.near(inputs) for one in blend.guards]
            place = Place(inputs.to(work), inside)
        rounding = self._rounding(dtype, work)
        if not is_traced() and given.device.type == "cpu" and not rounding.came:
            return self._keep_broken(given, place, blend, rounding)
        anchor = self._anchor_at(place.inputs)
        y = torch.where(torch.isfinite(y).all(-1, keepdim=True), y, anchor)
        return blend.blend_and_round(place, y, anchor=anchor, rounding=rounding).to(dtype)

    def _keep_broken(self, given: Tensor, place: Place, blend: Blend, rounding: Rounding) -> Tensor:
        """The same, where looking at numbers is cheap: rows that keep all rules are left out."""
        dtype = given.dtype if given.dtype in OUTPUT_DTYPES else torch.float32
        y = given.to(place.inputs.dtype)
        finite = torch.isfinite(y).all(-1)
        if not bool(finite.all()):
            y = torch.where(finite.unsqueeze(-1), y, self._anchor_at(place.inputs))
        slacks = blend.slacks(place.inputs, y)
        kept = torch.stack([(one >= 0).all(-1) for one in slacks]).all(0) & finite
        rows = (~kept).nonzero()[:, 0]
        if not len(rows):
            return given.to(dtype)
        if 2 * len(rows) > len(given):  # copying so many would take longer than all of them
            anchor = self._anchor_at(place.inputs)
            whole = blend.blend_and_round(place, y, anchor=anchor, rounding=rounding, slacks=slacks)
            return whole.to(dtype)
        part = place.rows(rows)
        moved = blend.blend_and_round(
            part,
            y[rows],
            anchor=self._anchor_at(part.inputs),
            rounding=rounding,
            slacks=[one[rows] for one in slacks],
        )
        return given.to(dtype).index_copy(0, rows, moved.to(dtype))

    # ---- checkpoints and words ----------------------------------------------------------------

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        """The anchor of the checkpoint takes the place of the own one, once it is proven again."""
        names = [f"{prefix}anchor_{name}" for name in ("slopes", "offsets")]
        errors, known = rest[-1], len(rest[-1])
        found: AffineMap | None = None
        if all(name in state_dict for name in names):
            slopes, offsets = (
                np.array(state_dict[name].detach().double().cpu().numpy()) for name in names
            )
            if (slopes.shape, offsets.shape) == (self.anchor.slopes.shape, (self.output_size,)):
                try:
                    found = AffineMap(slopes, offsets)
                    self.within.check(found)
                    room = check_given(self.guards, found).room
                except InvalidInput as error:
                    errors.append(f"Shield: {error}")
                    return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)
        if found is not None and len(errors) == known:
            self.anchor, self.room, self._constant = found, room, found.is_constant
            free = all(one.rules.free_of_inputs for one in self.guards)
            self.needs_input = not (found.is_constant and free)
            self._restore()

    def _restore(self) -> None:
        super()._restore()
        device = self.rules.device
        for name, array in (("slopes", self.anchor.slopes), ("offsets", self.anchor.offsets)):
            own = torch.tensor(array, dtype=working_dtype(device), device=device)
            self._buffers[f"anchor_{name}"] = own

    def extra_repr(self) -> str:
        how = "constant" if self.anchor.is_constant else "affine"
        names = ", ".join(one.name for one in self.guards)
        return f"{names}; {self.output_size} outputs, {how} anchor, room {self.room:.3g}"

    def guarantee(self, dtype: torch.dtype | None = None) -> str:
        """Which rules hold, where, how that is known, and up to what rounding of this dtype.

        By default of the dtype that the module was last cast to.
        """
        asked = self.dtype if dtype is None else dtype
        asked = asked if asked == torch.float64 else torch.float32
        unit = self._rounding(asked, torch.float64).unit
        how = "constant" if self.anchor.is_constant else "affine"
        lines = [f"Shield over {self.output_size} outputs, in {str(asked).removeprefix('torch.')}:"]
        for one in self.guards:
            rows = len(one.sizes)
            place = "at every input" if one.everywhere else f"at every input of {one.region}"
            lines.append(f"- {one.name} ({rows} row{'s' * (rows != 1)}) holds {place}")
        if self.within.names:
            lines.append(f"- {' and '.join(self.within.names)}: kept where y keeps it")
        if any(not one.everywhere for one in self.guards):
            lines.append("Inputs outside a region, or with NaN: its rules are left alone there.")
        lines.append(
            f"Established by closed form: a {how} anchor keeps every rule there, with room "
            f"{self.room:.3g} of its size, and outputs are moved towards it until they do."
        )
        lines.append(
            "Rounding: outputs that are not moved keep the rules as float64 computes them. Moved "
            f"ones keep them exactly where the anchor leaves {4 * unit:.1e} of the sum of the "
            f"sizes of a row's terms, and miss them by less than {unit:.1e} of it elsewhere."
        )
        if any(isinstance(one.rules, FunctionRules) for one in self.guards):
            lines.append("Functions of your own are kept to the rounding of their values.")
        if not self.needs_input and any(not one.everywhere for one in self.guards):
            lines.append("Called without x, the rules hold at every output.")
        return "\n".join(lines)
