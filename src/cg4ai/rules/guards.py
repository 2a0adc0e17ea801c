"""Rules over a region as a shield reads them, and the least step to an anchor that restores them.

At an input x the outputs that keep the rules are a convex set C(x). For outputs f and an anchor a
in C(x), `Guard.theta` is a share t in [0, 1] with `f + t (a - f)` in C(x), 0 where f is in it: the
smallest such share for rules that are linear or quadratic in the output, a sufficient one for other
concave rules. docs/mathematics.md has the proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput, MissingFactory
from cg4ai.records import Array, IntArray, select_prefixed
from cg4ai.rules.affine import AIM, AffineRules
from cg4ai.rules.concave import Concave
from cg4ai.rules.normal_form import NormalForm, NormalFormDefaults
from cg4ai.rules.quadratic import QuadraticRules
from cg4ai.rules.regions import Region, region_of
from cg4ai.rules.requirement import Requirement, rows_at_centre
from cg4ai.rules.row_sizes import UNSCALED
from cg4ai.rules.shared_limits import SharedRules

TOLERANCE = 1e-9  # of the size of its bound, down to which a prediction counts as keeping a rule
ROUNDING = 1e-12  # of the sizes of all terms of a rule: more than its value is rounded by
SMALL = UNSCALED[0]  # bounds below this are in units of their own, others in ones
# by how much an anchor that breaks a rule as well, outside the region, must be the better: where
# both are alike, as on a link that all outputs use, rounding would choose
BETTER = 1e-9
ROOMY = 4.0  # margins for rounding that an anchor must leave to be of help
# rules that can be stored, by name
FUNCTION = "function"
FORMS: dict[str, Any] = {
    "affine": AffineRules,
    "quadratic": QuadraticRules,
    "shared": SharedRules,
}


@dataclass(frozen=True, eq=False)
class FunctionRules(NormalFormDefaults):
    """Rules without a normal form, known through the requirement: those of a concave functional.

    `bounds` (L,) are those of its rows.
    """

    requirement: Requirement
    bounds: Array

    digest: ClassVar[None] = None

    @property
    def free_of_inputs(self) -> bool:
        """A function in Python is of the outputs alone, or of who knows what."""
        return isinstance(self.requirement, Concave)

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return -self.requirement.violations(inputs, outputs)

    def bound_sizes(self, ends: Array) -> Array:
        return np.abs(self.bounds)

    def sizes(self, inputs: Array, outputs: Array) -> Array:
        """Of the values: what they are made of is not known."""
        with torch.no_grad():
            slack = self.slack(torch.as_tensor(inputs), torch.as_tensor(outputs)).numpy()
        return np.asarray(np.abs(slack) + np.abs(self.bounds))

    def term_sizes(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L): an estimate, from how the value grows with outputs.

        What the values are made of is not known.
        """
        with torch.no_grad():
            own, none, twice = (self.slack(inputs, factor * outputs) for factor in (1.0, 0.0, 2.0))
        bounds = torch.as_tensor(self.bounds).to(own)
        return torch.nan_to_num(own.abs() + (twice - none).abs()) + bounds.abs()


@dataclass(frozen=True, eq=False)
class Guard:
    """The rules of one requirement, each linear or concave in the output, and where they hold.

    `everywhere`: outputs are moved outside the region as well, where the anchor need not keep the
    rules. Else whether one is moved depends on all inputs, as all say whether the region is left.
    """

    name: str
    region: Region
    rules: Any  # NormalForm; anchors look at what kind of it
    everywhere: bool = False

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for guards that keep the same rules in the same region under the same name.

        Rules that are functions in Python are the same only as those of one requirement: two
        functions cannot be compared, whatever their names.
        """
        rules = self.rules.digest
        if rules is None:
            rules = f"{FUNCTION} {id(self.rules.requirement)}"
        more = ("everywhere",) if self.everywhere else ()
        return (self.name, rules, repr(self.region.record()), *more)

    @cached_property
    def sizes(self) -> Array:
        """(L,): the size of each bound in the region, by the region's own ends."""
        ends = np.abs(np.stack(self.region.bounds())).max(axis=0)
        return np.asarray(self.rules.bound_sizes(ends))

    @cached_property
    def scale(self) -> Array:
        """(L,): in what room is measured: the sizes, or 1 where that is more.

        Where all bounds are small, as in units of one's own, the largest takes the place of 1.
        """
        largest = float(self.sizes.max(initial=0.0))
        return np.maximum(self.sizes, largest if 0 < largest < SMALL else 1.0)

    def rounding(self, inputs: Array, outputs: Array) -> Array:
        """(n, d), (n, r) -> (n, L): more than rounding can take from a slack."""
        return ROUNDING * np.asarray(self.rules.sizes(inputs, outputs))

    def theta(self, inputs: Tensor, own: Tensor, outputs: Tensor, anchor: Tensor) -> Tensor:
        """(..., n): the largest share that any broken rule needs of the anchor; see `shares`."""
        return self.shares(inputs, own, outputs, anchor).amax(-1)

    def shares(
        self,
        inputs: Tensor,
        own: Tensor,
        outputs: Tensor,
        anchor: Tensor,
        inside: Tensor | None = None,
    ) -> Tensor:
        """(..., n, L): the share of the anchor that each rule needs, 0 where it is kept.

        `own` (..., n, L) is the slack of the outputs (..., n, r), `anchor` (n, r) the anchor's
        outputs, `inside` (n,) which inputs are in the region, where that is known. Where the anchor
        breaks a rule too it is taken whole if that is better, else the rule is left alone.
        """
        other = self.rules.slack(inputs, anchor)
        exact = self.rules.shares(inputs, outputs, anchor, aim=self._aim(own))
        share = self._line_shares(own, other, self._aim(own), exact)
        return self._there(share, inputs, inside)

    def shares_of_broken(self, inputs: Tensor, outputs: Tensor, anchor: Tensor) -> Tensor:
        """(..., n, K): `shares` of the K rules that some output breaks; those of others are 0.

        For separable rules (`NormalForm.is_separable`) of which few are broken: gradients, and the
        slack of the anchor, then are of these alone.
        """
        which = self.rules.find_broken(inputs, outputs)
        slack = self.rules.pick(which, outputs)
        own, other = slack(inputs, outputs), slack(inputs, anchor)
        share = self._line_shares(own, other, self._aim(own).index_select(0, which), None)
        return self._there(share, inputs, None)

    def _line_shares(self, own: Tensor, other: Tensor, aim: Tensor, exact: Tensor | None) -> Tensor:
        """The shares by slacks of outputs and anchor: along a line, unless they are known exactly.

        `aim` (L,) is how far inside its bound each is restored.
        """
        reach = other.clamp_min(0.0)
        # not a number is neither kept nor worse than the anchor
        alike = other <= own
        if self.everywhere:  # where the anchor keeps the rule, it is the better by any amount
            alike |= (other < 0) & (other <= own + BETTER)
        short = ~((own >= 0) | alike)
        if exact is not None:
            share = torch.where(short, exact, 0.0)
        else:
            aim = torch.minimum(reach, aim)
            # what is masked must not divide by 0, or its gradient would be no number
            gap = torch.where(short, reach - own, 1.0)
            share = torch.where(short, (aim - own) / gap, 0.0)
        return torch.where(torch.isfinite(share), share.clamp_max(1.0), 1.0)

    def shares_of_one(
        self, x: Array, own: Array, other: Array, which: IntArray | None = None
    ) -> Array:
        """`shares` for one input (d,), by NumPy: the slacks of outputs (m, L) and anchor (1, L).

        For rules that have none of their own (`NormalForm.shares`). Slacks may be of the rules
        `which` alone.
        """
        alike = other <= own
        if self.everywhere:
            alike |= (other < 0) & (other <= own + BETTER)
        elif not self.region.is_near(x):
            return np.zeros(own.shape)
        short = ~((own >= 0) | alike)
        reach = np.maximum(other, 0.0)
        aim = np.minimum(reach, AIM * (self.scale if which is None else self.scale[which]))
        share = np.where(short, (aim - own) / np.where(short, reach - own, 1.0), 0.0)
        return np.where(np.isfinite(share), np.minimum(share, 1.0), 1.0)

    def _there(self, share: Tensor, inputs: Tensor, inside: Tensor | None) -> Tensor:
        """The share (..., n, L) where outputs are moved, and 0 elsewhere."""
        if self.everywhere:
            return share
        near = self.region.near(inputs) if inside is None else inside
        return torch.where(near.unsqueeze(-1), share, 0.0)

    def further_shares(
        self,
        inputs: Tensor,
        outputs: Tensor,
        anchor: Tensor,
        unit: float,
        inside: Tensor | None = None,
    ) -> Tensor:
        """(..., n, L): the share of the anchor by which rules are kept after rounding as well.

        Outputs (..., n, r) are rounded by a share `unit` of their size, and each rule by as much of
        the sizes of its terms, which at a share s are no larger than (1 - s) times those of the
        outputs and s times those of the anchor. An anchor that leaves less than four times that is
        no help: going a long way towards it would still prove nothing.
        """
        own, room = (self.rules.slack(inputs, one) for one in (outputs, anchor))
        here, there = (unit * self.rules.term_sizes(inputs, one) for one in (outputs, anchor))
        roomy = room >= ROOMY * torch.maximum(here, there)
        lacks = torch.where(roomy, here, 0.0) - own
        gains = room - own + torch.where(roomy, here - there, 0.0)
        short = (lacks > 0) & (room > own)
        share = torch.where(short, lacks / torch.where(short, gains, 1.0), 0.0)
        return self._there(share.clamp_max(1.0), inputs, inside)

    def _aim(self, like: Tensor) -> Tensor:
        """(L,): how far inside its bound a restored output aims."""
        key = (like.dtype, like.device)
        found = self._aims.get(key)
        if found is None:
            found = torch.as_tensor(AIM * self.scale).to(dtype=like.dtype, device=like.device)
            if not torch.compiler.is_compiling():
                self._aims[key] = found
        return found

    @cached_property
    def _aims(self) -> dict[tuple[torch.dtype, torch.device], Tensor]:
        return {}

    def find_read_outputs(self, output_size: int) -> NDArray[np.bool_]:
        """(L, r): which outputs each rule reads."""
        reads = self.rules.reads
        return np.ones((len(self.sizes), output_size), bool) if reads is None else reads

    def is_kept(self, inputs: Array, outputs: Tensor) -> NDArray[np.bool_]:
        """(n,): inside the region, and all rules recomputed from the outputs hold."""
        with torch.no_grad():
            x = torch.as_tensor(inputs, device=outputs.device)
            slack = self.rules.slack(x, outputs).cpu().numpy()
        allowed = TOLERANCE * self.sizes + self.rounding(inputs, outputs.cpu().numpy())
        return np.asarray((slack >= -allowed).all(axis=-1) & self.region.contains(inputs))

    def record(self) -> dict[str, Any]:
        """As JSON, for `from_record`; rules that are a function in Python by their name alone."""
        forms = [name for name, kind in FORMS.items() if isinstance(self.rules, kind)]
        form = forms[0] if forms else FUNCTION
        more = {"everywhere": True} if self.everywhere else {}
        return {"name": self.name, "region": self.region.record(), "rules": form, **more}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of the rules; none if they are a function in Python."""
        return dict(self.rules.arrays)

    @classmethod
    def from_record(
        cls,
        record: Any,
        arrays: Mapping[str, NDArray[Any]],
        functions: Mapping[str, Any],
    ) -> Guard:
        """What `record` and `arrays` gave; InvalidInput if it is damaged.

        Rules that are a function in Python are given again, the requirement by its name.
        """
        if not isinstance(record, dict) or not isinstance(record.get("name"), str):
            raise InvalidInput(
                f"a guard is an object with a text for its name, got {record!r:.80}",
                code="bad-file",
            )
        name, form = record["name"], FORMS.get(str(record.get("rules")))
        if record.get("rules") == FUNCTION:
            return _given_again(name, functions)
        if form is None:
            raise InvalidInput(
                f"the guard {name} has rules of kind {record.get('rules')!r:.80}", code="bad-file"
            )
        if not isinstance(record.get("region"), dict):
            raise InvalidInput(
                f"the guard {name} needs a region, got {record.get('region')!r:.80}",
                code="bad-file",
            )
        try:
            region = region_of(record["region"])
            rules = form.from_arrays(arrays, input_size=region.size)
            return cls(name, region, rules, record.get("everywhere") is True)
        except KeyError as error:
            raise InvalidInput(f"the guard {name} lacks {error}", code="bad-file") from error


def dump_guards(guards: Sequence[Guard]) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Guards as JSON and named arrays, for `load_guards`."""
    arrays = {
        f"guard.{number}.{name}": array
        for number, one in enumerate(guards)
        for name, array in one.arrays().items()
    }
    return [one.record() for one in guards], arrays


def load_guards(
    record: Any, arrays: Mapping[str, NDArray[Any]], functions: Mapping[str, Any]
) -> tuple[Guard, ...]:
    """What `dump_guards` was given; `functions` as for `Guard.from_record`."""
    if not isinstance(record, list):
        raise InvalidInput(
            f"the guards of a shield must be a list, got {record!r:.80}", code="bad-file"
        )
    return tuple(
        Guard.from_record(entry, select_prefixed(arrays, f"guard.{number}."), functions)
        for number, entry in enumerate(record)
    )


def _given_again(name: str, functions: Mapping[str, Any]) -> Guard:
    given: Any = functions.get(name)
    if getattr(given, "region", None) is None:
        raise MissingFactory(
            f"the rules of {name} are a function in Python, which no file holds; give the "
            f"requirement again: factories={{{name!r}: requirement}} (given: {sorted(functions)})"
        )
    size = getattr(given, "output_size", None)
    if size is None:
        raise InvalidInput(f"{name} does not know its outputs; call its check(...) first")
    return guard_of(given, size)


def guard_of(requirement: Requirement, output_size: int) -> Guard:
    """The guard of a requirement over a region: its normal form if it has one."""
    region = requirement.region
    if not isinstance(region, Region):
        raise InvalidInput(
            f"a shield keeps rules over a Box, Ball or Polytope, but {requirement.name} lists its "
            "inputs or sums over them; give the region in which it shall hold",
            code="unsupported",
        )
    rules: NormalForm | None = requirement.normal_form
    if rules is None:
        bounds = rows_at_centre(requirement, output_size).bounds
        rules = FunctionRules(requirement, bounds)
    return Guard(requirement.name, region, rules)
