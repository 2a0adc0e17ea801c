"""`certify`: is a requirement kept at every input of its region? Proven, refuted or unknown."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai.ensemble.claims import subject_digest
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.proofs.bounds.bound import Ball as Sphere
from cg4ai.proofs.bounds.bound import CellBound, Cells, Square, bound_cells, cell_bytes
from cg4ai.proofs.bounds.limits import Limits, limiting_rows, root
from cg4ai.proofs.bounds.rounding import check_magnitudes, margins, square_margins
from cg4ai.proofs.bounds.search import Batch, Search
from cg4ai.proofs.bounds.terms import Parts, RuleTerms
from cg4ai.proofs.certificate import verified_rules
from cg4ai.proofs.equalities import certify_equality
from cg4ai.proofs.records import Certification, OpenCells, Progress, RuleProof, Status
from cg4ai.proofs.rules import ProofRules, proof_rules_of
from cg4ai.proofs.shields import Shielded, shield_of
from cg4ai.records import Array
from cg4ai.rules import Requirement
from cg4ai.rules.equality import Equality
from cg4ai.rules.regions import Ball, Region

CPU_VALUES = 2**16  # hidden values of a batch of cells that stay in cache
GPU_VALUES = 2**25
MEMORY_LIMIT = 4 * 2**30  # bytes: half for a batch, half for trees and open cells
FIRST_ROUND = 4096  # cells per rule in the first round; each later round has eight times more
TELL_EVERY_S = 0.5  # progress is told no more often
LOOKS = 64  # cells of a batch at whose worst corner the ensemble itself is asked


@dataclass(frozen=True)
class _Found:
    point: Array
    value: float


class _Certifier:
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
    ) -> None:
        self.ensemble, self.rules, self.region, self.batch = ensemble, rules, region, batch
        self.memory_limit = memory_limit
        self.subject = subject
        check_magnitudes(ensemble, rules, region)
        self.lower, self.upper = root(region)
        used = ensemble.to(device).used
        self.parts = Parts(used, ensemble.layout, lower=self.lower, upper=self.upper)
        self.device = self.parts.device
        self.weights = torch.as_tensor(
            np.concatenate([part.weights for part in ensemble.used]), device=self.device
        )
        self.margins, self.targets = square_margins(self.parts, rules), rules.targets
        rows, most = limiting_rows(region)
        self.limits = [Limits.of(rules, rule, rows, most) for rule in range(len(rules))]
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
        self.found: dict[int, _Found] = {}
        self.sphere = self._sphere()

    def resume(self, earlier: Certification) -> None:
        if earlier.subject != self.subject:
            raise InvalidInput(
                "the certification to resume was made for another mixture, region or rules; "
                "resume with what it was made for, or start anew without resume"
            )
        for proof, search in zip(earlier.rules, self.searches, strict=True):
            search.resume(
                proof.dimensions,
                proof.leaf_bounds,
                cells=proof.cells,
                leaf_uses=proof.leaf_uses,
            )

    def outside(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
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

    def bounder(self, rule: int) -> tuple[Callable[[Cells], CellBound], int]:
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
                target=self.searches[rule].limit - self.searches[rule].margin,
                squares=squares,
            )

        return bound, self._batch_size(terms)

    def _squares(self, rule: int) -> list[Square]:
        """The sums of outputs that a rule squares, taken apart."""
        if rule not in self.rules.square_rule:
            return []
        forms = self.rules.forms(rule)
        count, margin = len(forms) // 2, margins(self.parts, forms)
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
        own = cell_bytes(terms, input_size=len(self.lower))
        room = self.memory_limit // 2 // own
        if room < 1:
            raise InvalidInput(
                f"one cell of rule {terms.rule} needs about {own / 2**20:.0f} MiB, more than half "
                f"of memory_limit, {self.memory_limit} bytes: raise memory_limit"
            )
        return min(quick, room)

    @property
    def full(self) -> bool:
        """Whether trees and open cells fill the other half of the memory."""
        return sum(search.stored_bytes for search in self.searches) > self.memory_limit // 2

    def look(self, rule: int, batch: Batch) -> None:
        """Ask the ensemble itself at the centres and worst corners of some open cells."""
        if not len(batch.bounds):
            return
        worst = np.argsort(-batch.bounds, kind="stable")[:LOOKS]
        lower, upper = batch.lower[worst], batch.upper[worst]
        corner = np.where(batch.direction[worst] >= 0, upper, lower)
        self.test(np.concatenate([0.5 * (lower + upper), corner]), rule)

    def _values(self, points: Array) -> Array:
        return self.rules.measured(points, self.ensemble.predict(points, outside="ignore"))

    def test(self, points: Array, rule: int | None) -> None:
        """Remember each rule's worst point if it breaks the rule, also when asked by itself."""
        points = self.region.project(torch.as_tensor(points)).numpy()
        points = points[self.region.contains(points)]
        if not len(points):
            return
        excess = self._values(points) - self.targets
        for number in range(len(self.rules)) if rule is None else (rule,):
            at = int(excess[:, number].argmax())
            if excess[at, number] <= 0 or number in self.found:
                continue
            # matrix products of another size round differently: what is reported is this one
            point = points[at : at + 1]
            value = float(self._values(point)[0, number])
            if value > self.targets[number]:
                self.found[number] = _Found(point[0].copy(), value)


def certify(
    ensemble: Ensemble,
    requirement: Requirement,
    *,
    region: Region | None = None,
    time_limit_s: float = 600.0,
    cell_limit: int = 5_000_000,
    batch: int = 4096,
    memory_limit: int = MEMORY_LIMIT,
    device: str = "cpu",
    progress: Callable[[Progress], None] | None = None,
    resume: Certification | None = None,
    all_rules: bool = False,
    verify: bool = True,
) -> Certification:
    """Prove `requirement` at every input of its region (or of `region`), or find where it fails.

    Rules are linear (`Linear`, `Probability`, `Margin`) or `Quadratic`; an `Equality` is proven
    where members keep it by how they are built, at every input there is. At most `batch` cells are
    bounded at a time, `cell_limit` cells in all; `memory_limit`, in bytes, is shared by a batch and
    the cells kept. `resume` goes on from an earlier `unknown` answer for the same ensemble,
    requirement and region. The search ends at the first violation, or, with `all_rules`, goes on
    with the rules not refuted. Of a shielded ensemble it is proven that the anchor keeps the rules,
    on which all its predictions rest; of the mixture behind a shield certify `unshielded`.

    Proven is what the separate checker proves, too: what it rejects is unknown, and so is what
    `time_limit_s`, which includes the check, ends before the checker is done. With `verify` False
    the check is left for later, to `verified`, and nothing is recorded as certified before.
    """
    started = time.perf_counter()
    _check_limits(time_limit_s, cell_limit, batch=batch, memory_limit=memory_limit)
    if isinstance(requirement, Equality):
        return certify_equality(ensemble, requirement)
    rules = proof_rules_of(requirement, output_size=ensemble.output_size)
    place = region if region is not None else requirement.region
    if not isinstance(place, Region) or place.size != ensemble.input_size:
        raise InvalidInput(
            f"certify needs a Box, Ball or Polytope with {ensemble.input_size} features, got "
            f"{place}"
        )
    shielded = shield_of(ensemble)
    if shielded is not None:
        shielded.need(rules, place)
    work = _Certifier(
        ensemble if shielded is None else shielded.anchor,
        rules,
        region=place,
        device=device,
        batch=batch,
        memory_limit=memory_limit,
        subject=subject_digest(ensemble, rules, place),
    )
    before = 0.0
    if resume is not None:
        work.resume(resume)
        before = resume.seconds
    generator = torch.Generator().manual_seed(0)
    first = torch.cat([place.extremes(512, generator), place.sample(512, generator)])
    work.test(first.numpy(), None)
    _search(
        work,
        started,
        time_limit_s=time_limit_s,
        cell_limit=cell_limit,
        progress=progress,
        all_rules=all_rules,
    )
    if progress is not None:
        progress(_progress(work, time.perf_counter() - started))
    answer = _answer(work, before + time.perf_counter() - started)
    if shielded is not None:
        answer = _of_shield(answer, shielded)
    if not verify:
        return answer
    left = started + time_limit_s - time.perf_counter()
    answer = verified_rules(answer, ensemble, rules, region=place, time_limit_s=left)
    return replace(answer, seconds=before + time.perf_counter() - started)


def _of_shield(answer: Certification, shielded: Shielded) -> Certification:
    """What is known of the anchor, as an answer about the shielded ensemble.

    An anchor that breaks a rule refutes no prediction: it only leaves them without a proof.
    """
    if answer.status != "refuted" or answer.counterexample is None:
        return replace(answer, shield=shielded.of)
    place = ", ".join(f"{value:.6g}" for value in answer.counterexample[:6])
    more = ", ..." if len(answer.counterexample) > 6 else ""
    return replace(
        answer,
        status="unknown",
        rules=tuple(
            replace(proof, status="unknown" if proof.status == "refuted" else proof.status)
            for proof in answer.rules
        ),
        note=f"the anchor of the shield breaks rule {answer.counterexample_rule}: it reaches "
        f"{answer.counterexample_value:.9g} at x = [{place}{more}]; take another anchor",
        counterexample=None,
        counterexample_rule=None,
        counterexample_value=None,
        violations={},
        exhausted=True,
        shield=shielded.of,
    )


def _check_limits(time_limit_s: float, cell_limit: int, *, batch: int, memory_limit: int) -> None:
    if not time_limit_s > 0 or min(cell_limit, batch, memory_limit) < 1:
        raise InvalidInput(
            "certify needs time_limit_s > 0, cell_limit >= 1, batch >= 1 and memory_limit >= 1, "
            f"got {time_limit_s}, {cell_limit}, {batch} and {memory_limit}"
        )


def _search(
    work: _Certifier,
    started: float,
    *,
    time_limit_s: float,
    cell_limit: int,
    progress: Callable[[Progress], None] | None,
    all_rules: bool,
) -> None:
    """Rounds over the open rules, each with eight times the cells: easy rules are not kept waiting.

    Which rule resists is known early, and a violation anywhere is found early.
    """
    budget, spent, told = FIRST_ROUND, 0, -np.inf
    while True:
        waiting = [
            rule
            for rule, search in enumerate(work.searches)
            if search.waiting and rule not in work.found
        ]
        if not waiting or (work.found and not all_rules):
            return
        for rule in waiting:
            search = work.searches[rule]
            bound, count = work.bounder(rule)
            until = search.cells + budget
            while search.waiting and search.cells < until and rule not in work.found:
                room, now = cell_limit - spent, time.perf_counter()
                if room <= 0 or now - started > time_limit_s or work.full:
                    return
                if progress is not None and now - told > TELL_EVERY_S and spent:
                    progress(_progress(work, now - started))
                    told = now
                before = search.cells
                work.look(rule, search.step(min(count, room), bound, outside=work.outside))
                spent += search.cells - before
            if work.found and not all_rules:
                return
        budget *= 8


def _progress(work: _Certifier, seconds: float) -> Progress:
    searches = work.searches
    bounded = [search.bound - search.limit for search in searches if search.cells]
    return Progress(
        sum(not search.open for search in searches),
        len(searches),
        sum(search.cells for search in searches),
        sum(search.open for search in searches if search.cells),
        max(bounded, default=np.inf),
        seconds,
    )


def _answer(work: _Certifier, seconds: float) -> Certification:
    proofs = []
    worst = max(
        work.found, key=lambda rule: work.found[rule].value - work.targets[rule], default=None
    )
    found = None if worst is None else work.found[worst]
    for rule, search in enumerate(work.searches):
        status: Status = "unknown" if search.open else "proven"
        if rule in work.found:
            status = "refuted"
        dimensions, leaf_bounds, uses = search.preorder()
        tree = (dimensions, leaf_bounds, search.cells, uses)
        proofs.append(RuleProof(rule, status, search.limit, search.bound, *tree))
    status = "unknown" if any(proof.status == "unknown" for proof in proofs) else "proven"
    if found is not None:
        status = "refuted"
    return Certification(
        status,
        tuple(proofs),
        None if found is None else found.point,
        worst,
        None if found is None else found.value,
        _open_cells(work),
        sum(search.cells for search in work.searches),
        seconds,
        _note(work, status),
        {rule: own.point for rule, own in work.found.items()},
        work.subject,
        not any(search.waiting for search in work.searches),
    )


def _note(work: _Certifier, status: Status) -> str:
    if status == "proven":
        return f"bounds include a margin of up to {work.margins.max():.2g} for rounding"
    if status == "refuted":
        return f"rules {_listed(sorted(work.found))} refuted; open cells of all rules are kept"
    left = [rule for rule, search in enumerate(work.searches) if search.open]
    if any(work.searches[rule].waiting for rule in left):
        reached = "the memory limit" if work.full else "a limit"
        note = f"{reached} was reached with rules {_listed(left)} open"
    else:
        note = f"the cells left of rules {_listed(left)} are too small to halve"
    held = {rule: work.searches[rule].held_by_margin() for rule in left}
    held = {rule: count for rule, count in held.items() if count}
    if held:
        margin = max(work.margins[rule] for rule in held)
        note += (
            f"; {sum(held.values())} cells of rules {_listed(list(held))} are open only because "
            f"bounds include a margin of up to {margin:.2g} for rounding: a value so close to its "
            "limit cannot be proven, ask for a limit wider by more than that"
        )
    return note


def _listed(rules: list[int]) -> str:
    shown = ", ".join(str(rule) for rule in rules[:8])
    return f"{shown}, ..." if len(rules) > 8 else shown


def _open_cells(work: _Certifier) -> OpenCells:
    size = len(work.lower)
    parts = [(rule, *search.open_cells()) for rule, search in enumerate(work.searches)]
    return OpenCells(
        np.concatenate([np.full(len(bounds), rule) for rule, _, _, bounds in parts]),
        np.concatenate([lower for _, lower, _, _ in parts]).reshape(-1, size),
        np.concatenate([upper for _, _, upper, _ in parts]).reshape(-1, size),
        np.concatenate([bounds for _, _, _, bounds in parts]),
    )
