"""From rules to what a shield needs: guards, what outputs keep already, and a proven anchor."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cg4ai.anchors.affine_maps import AffineMap, Space
from cg4ai.anchors.search import Anchor, NoAnchor, check_given, find_anchor
from cg4ai.data import arrays
from cg4ai.errors import InvalidInput, MissingAnchor
from cg4ai.nn.layer_rules import LayerRule, PlacedRule
from cg4ai.rules import output_sets
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.equality import Completion, Equality, join_equalities
from cg4ai.rules.guards import Guard, guard_of
from cg4ai.rules.output_sets import OutputRule, OutputSet
from cg4ai.rules.regions import Box, Region
from cg4ai.rules.requirement import InputRule

# where rules hold that name no region and depend on no input: it is never looked at
ANYWHERE = Box([-1.0], [1.0])
AGREES = 1e-9  # rounding that an anchor of the user's own may have


@dataclass(frozen=True)
class Within:
    """What outputs keep before the shield and must keep after it: equalities, or one set."""

    completion: Completion | None = None
    outputs: OutputSet | None = None
    tied: tuple[tuple[int, ...], ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, rules: Sequence[LayerRule], *, input_size: int, output_size: int) -> Within:
        equalities = [one for one in rules if isinstance(one, Equality)]
        sets = [one for one in rules if isinstance(one, OutputRule)]
        others = [one for one in rules if not isinstance(one, Equality | OutputRule)]
        if others or (equalities and sets):
            raise InvalidInput(
                "within takes Equality rules, or Range, Ordered and SumTo, but not both, got "
                f"{', '.join(type(one).__name__ for one in rules)}",
                code="unsupported",
            )
        names = tuple(one.name for one in rules)
        if equalities:
            for one in equalities:
                one.check(input_size, output_size)
            tied = [tuple(np.flatnonzero(row).tolist()) for one in equalities for row in one.matrix]
            completion = join_equalities(equalities, input_size=input_size)
            return cls(completion, None, tuple(tied), names)
        if sets:
            inside = output_sets.join_output_rules(sets, output_size)
            return cls(None, inside, inside.tied_outputs, names)
        return cls()

    def space(self, output_size: int, input_size: int) -> Space:
        """The maps among which an anchor is sought."""
        own = self.completion
        if own is not None:
            free = Space.free(output_size, input_size)
            return replace(free, offset=own.offset, slope=own.slope, basis=own.basis)
        if self.outputs is not None:
            return Space.inside(self.outputs, input_size)
        return Space.free(output_size, input_size)

    def check(self, anchor: AffineMap) -> None:
        """Refuse an anchor that would take outputs out of what they keep."""
        if self.completion is not None:
            own = self.completion
            solved = np.linalg.lstsq(
                own.basis,
                np.column_stack([anchor.offsets - own.offset, anchor.slopes - own.slope]),
                rcond=None,
            )[0]
            offset, slope = own.basis @ solved[:, 0], own.basis @ solved[:, 1:]
            size = 1 + np.abs(anchor.offsets).max() + np.abs(anchor.slopes).max()
            missed = max(
                np.abs(anchor.offsets - own.offset - offset).max(),
                np.abs(anchor.slopes - own.slope - slope).max(initial=0.0),
            )
            kept = missed <= AGREES * size
        elif self.outputs is not None:
            matrix, bound = self.outputs.rows
            short = bound - matrix @ anchor.offsets
            kept = anchor.is_constant and bool((short <= AGREES * (1 + np.abs(bound))).all())
        else:
            kept = True
        if not kept:
            raise InvalidInput(
                f"the anchor does not keep {' and '.join(self.names)}, within which outputs are "
                "moved; give one that does, or none to have it found",
                code="anchor",
            )


def build_guards(
    rules: Sequence[LayerRule], *, region: Region | None, output_size: int
) -> tuple[Guard, ...]:
    """The guards of rules, each over its own region or the one that is given for all."""
    named = (one.inputs for one in rules if isinstance(one, InputRule))
    known = next((one for one in named if isinstance(one, Region)), None)
    place = region or known or ANYWHERE
    found: list[Guard] = []
    for one in rules:
        everywhere = region is None and one.inputs is None
        guard = (
            _build_guard_of_outputs(one, place, output_size)
            if isinstance(one, OutputRule)
            else _build_guard(one, place, output_size)
        )
        if everywhere and not guard.rules.free_of_inputs:
            raise InvalidInput(
                f"{one.name} depends on the input, but no region says where it holds; give "
                "region=Box(lower, upper), or a region to the rule",
                code="missing-argument",
            )
        found.append(replace(guard, everywhere=everywhere))
    sizes = {guard.region.size for guard in found}
    if len(sizes) > 1:
        raise InvalidInput(
            f"the regions of these rules have {sorted(sizes)} features; they must agree",
            code="shape",
        )
    return tuple(found)


def _build_guard(rule: PlacedRule, place: Region, output_size: int) -> Guard:
    if isinstance(rule, Equality):
        raise InvalidInput(
            f"{rule.name} is an equality, which leaves a shield no room: put a Completion before "
            "the Shield, and give the equality as within=",
            code="unsupported",
        )
    one = rule.place_over(place)
    one.check(one.input_size, output_size)
    return guard_of(one, output_size)


def _build_guard_of_outputs(rule: OutputRule, place: Region, output_size: int) -> Guard:
    """The guard of ranges and orders as linear rules."""
    source = rule.output_set(output_size)
    if source.totals:
        raise InvalidInput(
            f"{rule.name} fixes a sum, which leaves a shield no room: put an OutputSet before the "
            "Shield, and give the rule as within=",
            code="unsupported",
        )
    matrix, bound = source.rows
    rows = AffineRules.of(AffineCoefficients.fixed(matrix), bound, ">=", input_size=place.size)
    return Guard(rule.name, place, rows)


def choose_anchor(
    guards: Sequence[Guard], within: Within, *, given: Any, reference: Any, output_size: int
) -> Anchor:
    """The anchor that was given, with its room proven, or one that is found."""
    input_size = guards[0].region.size
    if given is not None:
        wanted = read_affine_map(given, "anchor", output_size=output_size, input_size=input_size)
        within.check(wanted)
        return check_given(guards, wanted)
    space = within.space(output_size, input_size)
    start = None
    if reference is not None:
        start = read_affine_map(
            reference, "reference", output_size=output_size, input_size=input_size
        )
        if within.names:
            within.check(start)
    found = find_anchor(guards, space=space, reference=start)
    if isinstance(found, NoAnchor):
        raise MissingAnchor(found.reason, rule=found.rule, point=found.input.tolist())
    return found


def read_affine_map(given: Any, what: str, *, output_size: int, input_size: int) -> AffineMap:
    """A constant vector (r,), (slopes (r, d), offsets (r,)), or an AffineMap."""
    made: AffineMap | None = None
    if isinstance(given, AffineMap):
        made = given
    elif isinstance(given, tuple) and len(given) == 2 and np.ndim(given[0]) == 2:
        made = AffineMap(*(arrays.as_numbers(one, what) for one in given))
    elif np.shape(given) == (output_size,):
        made = AffineMap.constant(arrays.as_numbers(given, what), input_size)
    shapes = (output_size, input_size), (output_size,)
    if made is None or (made.slopes.shape, made.offsets.shape) != shapes:
        raise InvalidInput(
            f"{what} is {output_size} numbers, (slopes ({output_size}, {input_size}), offsets "
            f"({output_size},)) or such an AffineMap, got {type(given).__name__} of shape "
            f"{np.shape(given) if not isinstance(given, tuple | AffineMap) else '(...)'}",
            code="shape",
        )
    return made


def compute_digest(guards: Sequence[Guard], within: Within) -> str:
    """Equal for shields that keep the same rules in the same regions."""
    content: list[Any] = [
        [one.rules.digest or f"function {one.name}", one.region.record(), one.everywhere]
        for one in guards
    ]
    content.append(None if within.completion is None else within.completion.digest)
    content.append(None if within.outputs is None else within.outputs.digest)
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
