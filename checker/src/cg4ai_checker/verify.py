"""Prove a certificate's claim again: every rule, every leaf of its tree, with own bounds."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.bound import rule_bound
from cg4ai_checker.caps import CapsVerdict, check_caps
from cg4ai_checker.cells import Cells, leaf_cells
from cg4ai_checker.claim import Claim
from cg4ai_checker.equality import EqualityVerdict, check_equality
from cg4ai_checker.errors import OutOfTime, Rejected
from cg4ai_checker.file import Content, parse_certificate, read_certificate
from cg4ai_checker.leaves import LeafBounds
from cg4ai_checker.outputs import OutputVerdict, check_outputs
from cg4ai_checker.ratio import RatioVerdict, check_ratio
from cg4ai_checker.shape import ShapeVerdict, check_shape
from cg4ai_checker.terms import RuleTerms
from cg4ai_checker.tree_sums import TreeSumVerdict, check_tree_sums
from cg4ai_checker.words import closest, ends, formulas, predicted, shape

CHUNK = 1024  # cells bounded at once, if they are small
MEMORY = 2**25  # numbers held at once, 256 MiB, while cells are bounded
LARGEST_CELL = 2**25  # numbers that one cell may take, or as many as the file has bytes
HALVINGS = 20  # how often a leaf that does not close may be halved again
BUDGET_START, BUDGET_PER_LEAF = 20_000, 8  # cells bounded beyond the leaves, in all

StructureVerdict = (
    CapsVerdict | EqualityVerdict | OutputVerdict | RatioVerdict | ShapeVerdict | TreeSumVerdict
)


@dataclass(frozen=True)
class Verdict:
    """What has been proven; only a complete proof gives one, all else is `Rejected`."""

    claim: Claim
    digest: str
    mixture_digest: str
    leaves: int
    extra_cells: int
    tree_leaves: int  # whose corners bound `rules_by_leaves`, each of these one cell of `leaves`
    rules_by_leaves: int
    bounds: Array  # (rules,) proven over the whole region, each at most its limit
    seconds: float

    @property
    def room(self) -> Array:
        """(rules,): limit minus bound."""
        return np.asarray(self.claim.target - self.bounds)

    def __str__(self) -> str:
        claim = self.claim
        tightest = int(self.room.argmin())
        return "\n".join(
            [
                f"Proven: {claim.requirement!r} of {claim.title}.",
                f"  At every float64 input of {shape(claim.region)}, each of {len(self.bounds)} "
                "rules keeps its limit.",
                *(f"  {line}" for line in predicted(claim, self.mixture_digest)),
                f"  Inputs x: {ends(claim.region)}.",
                *(f"  {line}" for line in formulas(claim)),
                *(f"  {line}" for line in (claim.totals.words() if claim.totals else ())),
                *(f"  {line}" for line in (claim.sums.words(claim.shield) if claim.sums else ())),
                f"  Closest: {closest(claim, tightest, float(self.bounds[tightest]))}.",
                f"  {self._covered()}, {self.seconds:.1f} s.",
                f"  Certificate sha256 {self.digest}.",
            ]
        )

    def _covered(self) -> str:
        """By what the region is covered: leaves of the members' trees, or cells."""
        by_leaves = (
            f"{self.rules_by_leaves} rules were bounded at the corners of {self.tree_leaves} "
            "leaves of the members' trees, which cover the region"
        )
        cells = self.leaves - self.rules_by_leaves
        by_cells = (
            f"{cells} cells cover the region for all rules; bounds were recomputed "
            f"({self.extra_cells} more cells were needed)"
        )
        said = [by_leaves] if self.rules_by_leaves else []
        return "; ".join([*said, by_cells] if cells else said)


def check(
    source: str | Path | bytes,
    *,
    halvings: int = HALVINGS,
    time_limit_s: float = math.inf,
    progress: Callable[[int, int], None] | None = None,
    each: Each = map,
) -> Verdict | Any:
    """Verify a certificate, given as a file or as its bytes; Rejected unless all is proven.

    The answer is a `Verdict` for rules over a region, and that of `verdict` for other kinds.
    A leaf whose bound does not close is halved up to `halvings` times. OutOfTime, a Rejected, ends
    what takes longer than `time_limit_s`: nothing is said against the certificate then.
    `progress(rules proven, rules)` is called after every rule. `each` does what `map` does, or the
    same for several pieces of the proof at a time.
    """
    content = parse_certificate(source) if isinstance(source, bytes) else read_certificate(source)
    by_structure = _check_structure(content)
    if by_structure is not None:
        return by_structure
    return _checked(content, halvings, time_limit_s=time_limit_s, progress=progress, each=each)


def verdict(
    source: str | Path | bytes, *, progress: Callable[[int, int], None] | None = None
) -> Verdict | StructureVerdict:
    """As `check`, for certificates of every kind; the class of the answer says which."""
    content = parse_certificate(source) if isinstance(source, bytes) else read_certificate(source)
    by_structure = _check_structure(content)
    if by_structure is not None:
        return by_structure
    return _checked(content, HALVINGS, time_limit_s=math.inf, progress=progress)


def _check_structure(
    content: Content,
) -> StructureVerdict | None:
    """The verdict on a claim that needs no cells; None of rules over a region."""
    kind = content.claim.get("kind") if isinstance(content.claim, dict) else None
    if kind == "equality":
        return check_equality(content)
    if kind == "outputs":
        return check_outputs(content)
    if kind == "ratio":
        return check_ratio(content)
    if kind == "shape":
        return check_shape(content)
    if kind == "trees":
        return check_tree_sums(content)
    if kind == "caps":
        return check_caps(content)
    return None


def _checked(
    content: Content,
    halvings: int,
    *,
    time_limit_s: float,
    progress: Callable[[int, int], None] | None,
    each: Each = map,
) -> Verdict:
    started = time.perf_counter()
    digest = mixture_digest(content)
    # where large numbers overflow to infinity or NaN, nothing closes
    with np.errstate(over="ignore", invalid="ignore"):
        claim = Claim(content)
        leaves = sum(int((tree < 0).sum()) for tree in claim.trees)
        prover = _Prover(
            claim,
            halvings,
            budget=BUDGET_START + BUDGET_PER_LEAF * leaves,
            until=time.time() + time_limit_s,
        )
        bounds = prover.prove(each, progress)
    return Verdict(
        claim=claim,
        digest=content.digest,
        mixture_digest=digest,
        leaves=leaves,
        extra_cells=prover.extra,
        tree_leaves=prover.leaves.count,
        rules_by_leaves=prover.by_leaves,
        bounds=bounds,
        seconds=time.perf_counter() - started,
    )


def mixture_digest(content: Content) -> str:
    """SHA-256 over the members, their weights and their layout, as stored in the certificate."""
    claim = content.claim
    if not isinstance(claim, dict) or not {"blocks", "parts"} <= set(claim):
        raise Rejected("the claim names no blocks and parts")
    try:
        text = json.dumps([claim["blocks"], claim["parts"]], sort_keys=True)
    except RecursionError as error:
        raise Rejected("the claim is nested too deeply") from error
    total = hashlib.sha256(text.encode())
    for name in sorted(name for name in content.arrays if name.startswith("part")):
        array = np.ascontiguousarray(content.arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


@dataclass(frozen=True)
class _Piece:
    """Some leaves of the tree of a rule."""

    rule: int
    cells: Cells


@dataclass(frozen=True)
class _Closed:
    """The bound proven over a piece, and how many cells beyond its own that took."""

    rule: int
    bound: float
    extra: int


# as `map`: a function and pieces for it, answered in their order
Each = Callable[[Callable[[_Piece], _Closed], Iterable[_Piece]], Iterable[_Closed]]


class _Prover:
    """Bounds the leaves of one rule after the other; halves further those that do not close.

    `until` is a moment of `time.time`, which processes share.
    """

    def __init__(self, claim: Claim, halvings: int, *, budget: int, until: float) -> None:
        self._claim = claim
        self._halvings, self._budget, self._until = halvings, budget, until
        self.leaves, self.by_leaves = LeafBounds(claim.region), 0
        self.extra = 0
        self._bounds = np.full(len(claim.target), -np.inf)
        self._latest: tuple[int, RuleTerms, int] | None = None

    def prove(self, each: Each, progress: Callable[[int, int], None] | None) -> Array:
        """The bounds (rules,) proven over the whole region, each at most its limit, or Rejected."""
        count = len(self._bounds)
        done = 0
        for closed in each(self.close, self._pieces()):
            if closed.rule > done and progress is not None:
                progress(closed.rule, count)
            done = closed.rule
            self._bounds[done] = max(self._bounds[done], closed.bound)
            self.extra += closed.extra
            if self.extra > self._budget:
                name = self._claim.rule_names[done]
                raise Rejected(
                    f"not proven: up to {name} the check needs {self.extra} cells beyond those of "
                    f"the certificate, and {self._budget} is the most",
                    code="memory",
                )
        if progress is not None:
            progress(count, count)
        if (self._bounds == -np.inf).any():
            raise Rejected("no cell holds an input of the region: it is empty", code="empty")
        return self._bounds

    def _pieces(self) -> Iterator[_Piece]:
        """The leaves of all rules, but of those that trees show to hold by their own leaves."""
        for rule, tree in enumerate(self._claim.trees):
            terms, chunk = self._terms(rule)
            if len(tree) == 1:  # one cell: trees may show by their leaves that it closes
                whole = self.leaves.bound(terms)
                if whole is not None and whole <= self._claim.target[rule]:
                    self.by_leaves += self.leaves.count > 0  # constants alone have none
                    self._bounds[rule] = whole
                    continue
            yield from self._pieces_of(rule, chunk)

    def _pieces_of(self, rule: int, chunk: int) -> Iterator[_Piece]:
        region, (shares, multipliers) = self._claim.region, self._claim.uses[rule]
        done = 0
        for cells in leaf_cells(self._claim.trees[rule], region.lower, region.upper, chunk=chunk):
            own = slice(done, done + len(cells))
            done += len(cells)
            cells = replace(
                cells,
                shares=shares[own] if shares.size else None,
                multipliers=multipliers[own] if multipliers.size else None,
            )
            yield _Piece(rule, cells)

    def close(self, piece: _Piece) -> _Closed:
        """The bound proven over a piece, at most the rule's limit, or Rejected."""
        terms, chunk = self._terms(piece.rule)
        # where large numbers overflow to infinity or NaN, nothing closes
        with np.errstate(over="ignore", invalid="ignore"):
            return self._close(piece.rule, terms, piece.cells, chunk=chunk)

    def _terms(self, rule: int) -> tuple[RuleTerms, int]:
        """A rule taken apart, and how many of its cells are bounded at once."""
        if self._latest is None or self._latest[0] != rule:
            terms = self._claim.terms(rule)
            self._latest = (rule, terms, self._chunk(terms, self._claim.rule_names[rule]))
        return self._latest[1:]

    def _chunk(self, terms: RuleTerms, name: str) -> int:
        """How many cells of a rule are bounded at once."""
        numbers = terms.numbers_per_cell(self._claim.input_size)
        most = max(LARGEST_CELL, self._claim.size)
        if numbers > most:
            raise Rejected(
                f"not proven: bounding {name} on one cell takes {8 * numbers / 2**20:.0f} MiB, "
                f"and {8 * most / 2**20:.0f} MiB is the most that is used here",
                code="memory",
            )
        return int(np.clip(MEMORY // numbers, 1, CHUNK))

    def _close(self, rule: int, terms: RuleTerms, cells: Cells, *, chunk: int) -> _Closed:
        """The largest bound over cells, each halved as often as it needs and may be.

        Deep cells come first, so that never more wait than a chunk per halving.
        """
        claim, limit = self._claim, self._claim.target[rule]
        highest, extra = -np.inf, 0
        waiting = [(cells, 0)]
        while waiting:
            if time.time() > self._until:
                raise OutOfTime(
                    f"the time limit ended the check at rule {rule + 1} of {len(claim.target)}"
                )
            cells, depth = waiting.pop()
            cells = cells.take(~claim.region.missed_by(cells))
            if len(cells) == 0:
                continue
            bounds = rule_bound(terms, cells, claim.region)
            closed = np.isfinite(bounds.value) & (bounds.value <= limit)
            if closed.any():
                highest = max(highest, float(bounds.value[closed].max()))
            if closed.all():
                continue
            cells, value = cells.take(~closed), bounds.value[~closed]
            extra += 2 * len(cells)
            if depth == self._halvings or extra > self._budget:
                self._reject(rule, cells, value)
            halves = cells.halved(self._cuts(cells, bounds.blame[~closed], depth))
            waiting += [(some, depth + 1) for some in halves.split(chunk)]
        return _Closed(rule, float(highest), extra)

    def _cuts(self, cells: Cells, blame: Array, depth: int) -> NDArray[np.intp]:
        """Where to halve: what adds most to the bound, and every third time what is widest.

        Blame is a guess, and where rounding is all that is left of it, halving does not help.
        """
        region = self._claim.region
        width = (cells.upper - cells.lower) / np.maximum(region.upper - region.lower, 1e-300)
        if depth % 3 == 2:
            return np.asarray(width.argmax(axis=1))
        share = blame / np.maximum(blame.sum(axis=1, keepdims=True), 1e-300)
        return np.asarray((share + 0.05 * width).argmax(axis=1))

    def _reject(self, rule: int, cells: Cells, value: Array) -> None:
        worst = int(np.nan_to_num(value, nan=np.inf).argmax())
        low, high = cells.lower[worst], cells.upper[worst]
        ends = ", ".join(f"[{a:.6g}, {b:.6g}]" for a, b in zip(low[:6], high[:6], strict=True))
        more = ", ..." if len(low) > 6 else ""
        raise Rejected(
            f"not proven: {self._claim.rule_names[rule]} is bounded by {value[worst]:.9g} only, "
            f"its limit is {self._claim.target[rule]:.9g}, on the cell {ends}{more}",
            code="not-proven",
        )
