"""A proof in the making: the rules taken apart, a search of cells for each, and what was found."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai import clock
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.proofs.bounds.bound import CellBound, Cells, Square, bound_cells, estimate_cell_bytes
from cg4ai.proofs.bounds.bound import EuclideanBall as Sphere
from cg4ai.proofs.bounds.limits import RuleLimits, find_limiting_rows, find_root_box
from cg4ai.proofs.bounds.rounding import check_magnitudes, compute_margins, compute_square_margins
from cg4ai.proofs.bounds.search import CellBatch, Search
from cg4ai.proofs.bounds.terms import Parts, RuleTerms
from cg4ai.proofs.records import Certification, Progress
from cg4ai.proofs.rule_forms import ProofRules
from cg4ai.records import Array
from cg4ai.rules.regions import Ball, Region
from cg4ai.rules.row_sizes import RequirementSize

CPU_VALUES = 2**16  # hidden values of a batch of cells that stay in cache
GPU_VALUES = 2**25
HOPELESS_AFTER = 4096  # cells of a rule, if one of its inputs is too close to the limit
LOOKS = 64  # cells of a batch at whose worst corner the ensemble itself is asked


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends: after so many cells, at a moment of `clock.now`, or, unless
    `all_rules`, at the first rule that is refuted.
    """

    cells: int
    until: float
    all_rules: bool


@dataclass(frozen=True)
class Tolerance:
    """By how much a rule may be broken before it counts as refuted: `tolerance` x its size."""

    tolerance: float
    size: RequirementSize

    def at(self, bound: float) -> float:
        """For a row with this bound."""
        return self.tolerance * float(self.size.compute_row_sizes(np.array([bound]))[0])


@dataclass(frozen=True)
class Counterexample:
    """An input at which a rule is broken, or nearly so, and the rule's value there.

    `broken`: the value is above the limit in exact numbers, by no more than what is `allowed`
    unless the rule is refuted.
    """

    point: Array
    value: float
    broken: bool = True
    allowed: float = 0.0


class Certifier:
    """One call of `certify`: the rules taken apart, a search per rule, and what was found."""

    def __init__(
        self,
        ensemble: Ensemble,
        rules: ProofRules,
        *,
        region: Region,
        device: str,
        batch: int,
        memory_limit: int,
        subject: str,
        allowed: Tolerance,
    ) -> None:
        self.started = clock.now()
        self.ensemble, self.rules, self.region, self.batch = ensemble, rules, region, batch
        self.memory_limit = memory_limit
        self.subject, self.allowed = subject, allowed
        check_magnitudes(ensemble, rules, region)
        self.lower, self.upper = find_root_box(region)
        used = ensemble.to(device).used
        self.parts = Parts(used, ensemble.layout, lower=self.lower, upper=self.upper)
        self.device = self.parts.device
        self.weights = torch.as_tensor(
            np.concatenate([part.weights for part in ensemble.used]), device=self.device
        )
        self.margins, self.targets = compute_square_margins(self.parts, rules), rules.targets
        rows, most = find_limiting_rows(region)
        self.limits = [RuleLimits.of(rules, rule, rows, most) for rule in range(len(rules))]
        self.searches = [
            Search(
                float(self.targets[rule]),
                float(self.margins[rule]),
                lower=self.lower,
                upper=self.upper,
                uses=self.limits[rule].size,
            )
            for rule in range(len(rules))
        ]
        self.found: dict[int, Counterexample] = {}
        self.tight: dict[
            int, Counterexample
        ] = {}  # inputs so close to a limit that no cell there closes
        self.sphere = self._sphere()

    def resume(self, earlier: Certification) -> None:
        if earlier.subject != self.subject:
            raise InvalidInput(
                "the certification to resume was made for another mixture, region or rules; "
                "resume with what it was made for, or start anew without resume",
                code="altered",
            )
        for proof, search in zip(earlier.rules, self.searches, strict=True):
            search.resume(
                proof.dimensions,
                proof.leaf_bounds,
                cells=proof.cells,
                leaf_uses=proof.leaf_uses,
            )

    def copy_empty(self) -> Certifier:
        """A copy that bounds and tests alike, and has no cells and no finds yet."""
        made = copy.copy(self)
        made.searches, made.found, made.tight = [], {}, {}
        return made

    def find_outside(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Cells surely further from the centre than the radius, rounding included."""
        if self.sphere is None:
            return np.zeros(len(lower), bool)
        centre = self.sphere.centre.cpu().numpy()
        gap = np.maximum(np.maximum(lower - centre, centre - upper), 0.0)
        # a power of two near the radius: nothing is rounded, and squares stay in range
        unit = 2.0 ** math.floor(math.log2(self.sphere.radius))
        return np.asarray(np.linalg.norm(gap / unit, axis=1) > self.sphere.radius / unit)

    def _sphere(self) -> Sphere | None:
        """The Euclidean ball that the region is, a hair larger so that rounding loses nothing."""
        if not isinstance(self.region, Ball) or self.region.norm != 2:
            return None
        scale = self.region.radius + float(np.abs(self.region.centre).max())
        centre = torch.as_tensor(self.region.centre, device=self.device)
        return Sphere(centre, self.region.radius + 1e-11 * scale)

    def get_bounder(self, rule: int) -> tuple[Callable[[Cells], CellBound], int]:
        """The bound of one rule, and how many cells to give it at a time."""
        terms, squares = self.parts.take_apart(self.rules.affine, rule), self._squares(rule)

        def bound(cells: Cells) -> CellBound:
            moved = Cells(cells.lower.to(self.device), cells.upper.to(self.device))
            return bound_cells(
                terms,
                moved,
                weights=self.weights,
                ball=self.sphere,
                limits=self.limits[rule],
                target=float(self.targets[rule]) - float(self.margins[rule]),
                squares=squares,
            )

        return bound, self._batch_size(terms)

    def _squares(self, rule: int) -> list[Square]:
        """The sums of outputs that a rule squares, taken apart."""
        if rule not in self.rules.square_rule:
            return []
        forms = self.rules.build_forms(rule)
        count, margin = len(forms) // 2, compute_margins(self.parts, forms)
        return [
            Square(
                self.parts.take_apart(forms, number),
                self.parts.take_apart(forms, count + number),
                float(margin[number]),
            )
            for number in range(count)
        ]

    def _batch_size(self, terms: RuleTerms) -> int:
        """As many cells as are quick together, fewer where half the memory holds no more."""
        values = 1
        for group in terms.groups:
            hidden = group.networks.architecture.hidden
            width = sum(hidden) * max(hidden[1:], default=1)
            values += len(group.weights_at) * max(width, group.networks.output_size)
        budget = CPU_VALUES if self.device.type == "cpu" else GPU_VALUES
        quick = int(min(self.batch, max(16, budget // values)))
        own = estimate_cell_bytes(terms, input_size=len(self.lower))
        room = self.memory_limit // 2 // own
        if room < 1:
            raise InvalidInput(
                f"one cell of rule {terms.rule} needs about {own / 2**20:.0f} MiB, more than half "
                f"of memory_limit, {self.memory_limit} bytes: raise memory_limit",
                code="memory",
            )
        return min(quick, room)

    @property
    def full(self) -> bool:
        """Whether trees and open cells fill the other half of the memory."""
        return sum(search.stored_bytes for search in self.searches) > self.memory_limit // 2

    def test_cells(self, rule: int, batch: CellBatch) -> None:
        """Ask the ensemble itself at the centres and worst corners of some open cells."""
        if not len(batch.bounds):
            return
        worst = np.argsort(-batch.bounds, kind="stable")[:LOOKS]
        lower, upper = batch.lower[worst], batch.upper[worst]
        corner = np.where(batch.direction[worst] >= 0, upper, lower)
        self.test(np.concatenate([0.5 * (lower + upper), corner]), rule)

    def _values(self, points: Array) -> Array:
        return self.rules.measure(points, self.ensemble.predict(points, outside="ignore"))

    def test(self, points: Array, rule: int | None) -> None:
        """Remember each rule's worst point if it breaks the rule, also when asked by itself."""
        points = self.region.project(torch.as_tensor(points)).numpy()
        points = points[self.region.contains(points)]
        if not len(points):
            return
        excess = self._values(points) - self.targets
        for number in range(len(self.rules)) if rule is None else (rule,):
            at = int(excess[:, number].argmax())
            # a bound is the value at least, but for rounding, which is far below half the margin
            if excess[at, number] <= -self.margins[number] / 2 or number in self.found:
                continue
            # matrix products of another size round differently: what is reported is this one
            point = points[at : at + 1]
            outputs = self.ensemble.predict(point, outside="ignore")
            value = float(self.rules.measure(point, outputs)[0, number])
            broken = self.rules.is_broken(number, point[0], np.asarray(outputs)[0])
            allowed = self.allowed.at(float(self.rules.affine.bounds(point)[0, number]))
            found = Counterexample(point[0].copy(), value, broken, allowed)
            if broken and value - self.targets[number] > allowed:
                self.found[number] = found
            elif value > self.targets[number] - self.margins[number] / 2:
                self.keep_tight(number, found)

    def keep_tight(self, rule: int, found: Counterexample) -> None:
        """Remember an input that leaves no room, unless one that leaves less is known."""
        known = self.tight.get(rule)
        if known is None or (found.broken, found.value) > (known.broken, known.value):
            self.tight[rule] = found

    def look_first(self) -> None:
        """Test extremes and random points before any cell is bounded."""
        generator = torch.Generator().manual_seed(0)
        region = self.region
        first = torch.cat([region.extremes(512, generator), region.sample(512, generator)])
        self.test(first.numpy(), None)

    def find_waiting(self, limited: SearchLimits) -> list[int]:
        """The rules that are worth going on with."""
        if self.found and not limited.all_rules:
            return []
        return [
            rule
            for rule, search in enumerate(self.searches)
            if search.waiting and rule not in self.found and not self.is_hopeless(rule)
        ]

    def is_hopeless(self, rule: int) -> bool:
        """Whether some cells will stay open, and many cells showed no input that breaks it."""
        return rule in self.tight and self.searches[rule].cells >= HOPELESS_AFTER

    def progress(self) -> Progress:
        """How far the search has come."""
        searches = self.searches
        bounded = [search.bound - search.limit for search in searches if search.cells]
        return Progress(
            sum(not search.open for search in searches),
            len(searches),
            sum(search.cells for search in searches),
            sum(search.open for search in searches if search.cells),
            max(bounded, default=np.inf),
            clock.now() - self.started,
        )
