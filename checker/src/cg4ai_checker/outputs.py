"""Rules `matrix y >= bound` that outputs keep at every input, by how members are built.

A form says where a member's outputs lie whatever the input: in a set of ranges, orders and totals,
or in a sum of hulls of points, such as leaves. The least that a row can be there has a closed form;
and what members keep, so does every mixture of them, and every point between them and an anchor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.claim import Heading, checked, fields, whole
from cg4ai_checker.equality import EXACT, ROUNDOFF, components
from cg4ai_checker.errors import Rejected
from cg4ai_checker.file import Content
from cg4ai_checker.folder_reader import MemberState, below, member_state
from cg4ai_checker.scale import UNDERFLOW, factors, refuse_large
from cg4ai_checker.words import exact, linear_sum

KEYS = {
    *("kind", "title", "requirement", "input_size", "output_size", "forms", "made_by", "about"),
}
SHOWN = 6
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Hulls:
    """Outputs `sum_t h_t`, each h_t a mixture of the points (V, r) whose `term` (V,) is t."""

    points: Array
    term: Whole

    def examined(self, what: str) -> Hulls:
        """Itself in float64; Rejected where products with its numbers are not what they seem."""
        return replace(self, points=factors(self.points, f"a point of {what}"))

    def least(self, matrix: Array) -> Array:
        refuse_large(self.points, matrix.T)
        order, starts = self._terms()
        values = (self.points @ matrix.T)[order]
        return np.asarray(np.minimum.reduceat(values, starts, axis=0).sum(0))

    def sizes(self) -> Array:
        """(r,): of what outputs are sums of."""
        order, starts = self._terms()
        each = np.maximum.reduceat(np.abs(self.points)[order], starts, axis=0)
        return np.asarray(each.sum(0))

    def terms(self) -> int:
        return len(self._terms()[1])

    def _terms(self) -> tuple[Whole, Whole]:
        """An order (V,) of the points term by term, and where in it each term starts."""
        order = np.argsort(self.term, kind="stable")
        return order, np.unique(self.term[order], return_index=True)[1]


@dataclass(frozen=True)
class Arrangement:
    """Outputs within [low, -negated], (r,), rising by `rank` in a chain, with values of totals."""

    low: Array
    negated: Array
    chain: Whole
    rank: Whole
    total: Whole
    value: Array

    def examined(self, what: str) -> Arrangement:
        """As that of hulls; ends may be infinite."""
        for name, ends in (("low", self.low), ("negated", self.negated)):
            if not (ends < np.inf).all():
                raise Rejected(
                    f"the {name} end of {what} is not a number below infinity", code="not-finite"
                )
            factors(ends[np.isfinite(ends)], f"the {name} end of {what}")
        factors(self.value, f"a total of {what}")
        return self

    def least(self, matrix: Array) -> Array:
        return np.array([max(self._by_ends(row), self._by_ties(row)) for row in matrix])

    def sizes(self) -> Array:
        """(r,): of the ends that are there; orders and totals are exact."""
        ends = np.abs(np.stack([self.low, self.negated]))
        return np.asarray(np.where(np.isfinite(ends), ends, 0.0).max(0))

    def terms(self) -> int:
        return 0

    def _by_ends(self, row: Array) -> float:
        up, down = row > 0, row < 0
        return float(row[up] @ self.low[up] - row[down] @ self.negated[down])

    def _by_ties(self, row: Array) -> float:
        """A difference along a chain, or a multiple of the sum of all outputs of a total."""
        read = np.flatnonzero(row)
        if len(read) == 2 and row[read[0]] == -row[read[1]]:
            lower, upper = read if row[read[1]] > 0 else read[::-1]
            chained = self.chain[lower] >= 0 and self.chain[lower] == self.chain[upper]
            if chained and self.rank[lower] < self.rank[upper]:
                return 0.0
        number = self.total[read[0]] if len(read) else -1
        complete = number >= 0 and np.array_equal(read, np.flatnonzero(self.total == number))
        if complete and (row[read] == row[read[0]]).all():
            return float(row[read[0]] * self.value[number])
        return -np.inf


@dataclass(frozen=True)
class Reconciled:
    """Outputs `offset + slope x + basis z`, z (k,) within [low, -negated] and rising in chains.

    They are moved towards an anchor until each `row . y` (m, r) is at least `least` (m,); the
    anchor is a form of its own.
    """

    offset: Array
    slope: Array
    basis: Array
    low: Array
    negated: Array
    chain: Whole
    rank: Whole
    row: Array
    at_least: Array

    def examined(self, what: str) -> Reconciled:
        """As that of an arrangement."""
        for name, ends in (("low", self.low), ("negated", self.negated)):
            if not (ends < np.inf).all():
                raise Rejected(
                    f"the {name} end of {what} is not a number below infinity", code="not-finite"
                )
            factors(ends[np.isfinite(ends)], f"the {name} end of {what}")
        if not (self.low <= -self.negated).all():
            raise Rejected(f"{what} has a low end above its high one")
        for name in ("offset", "slope", "basis", "row", "at_least"):
            factors(getattr(self, name), f"{name} of {what}")
        for number in np.unique(self.chain[self.chain >= 0]):
            own = np.flatnonzero(self.chain == number)
            own = own[np.argsort(self.rank[own])]
            if len(set(self.rank[own].tolist())) < len(own) or not (
                np.all(np.diff(self.rank[own]) > 0)
                and np.all(self.low[own][:-1] <= self.low[own][1:])
                and np.all(self.negated[own][:-1] >= self.negated[own][1:])
            ):
                raise Rejected(f"the ends of {what} are not in order along a chain")
        return self

    def least(self, matrix: Array) -> Array:
        refuse_large(matrix, self.basis)
        across = matrix @ self.basis
        nothing = np.abs(across) <= EXACT * (np.abs(matrix) @ np.abs(self.basis))
        across = np.where(nothing, 0.0, across)
        tilt = np.abs(matrix @ self.slope) > EXACT * (np.abs(matrix) @ np.abs(self.slope))
        fixed = matrix @ self.offset
        found = [
            -np.inf if moved else base + max(self._by_ends(one), self._by_chains(one))
            for base, one, moved in zip(fixed, across, np.atleast_1d(tilt.any(axis=1)), strict=True)
        ]
        stated = [
            max(
                (b for r, b in zip(self.row, self.at_least, strict=True) if np.array_equal(r, one)),
                default=-np.inf,
            )
            for one in matrix
        ]
        return np.maximum(found, stated)

    def sizes(self) -> Array:
        ends = np.abs(np.stack([self.low, self.negated]))
        most = np.where(np.isfinite(ends), ends, 0.0).max(0, initial=0.0)
        return np.asarray(np.abs(self.offset) + np.abs(self.basis) @ most)

    def terms(self) -> int:
        return len(self.low)

    def _by_ends(self, row: Array) -> float:
        up, down = row > 0, row < 0
        return float(row[up] @ self.low[up] - row[down] @ self.negated[down])

    def _by_chains(self, row: Array) -> float:
        read = np.flatnonzero(row)
        if len(read) != 2 or row[read[0]] != -row[read[1]]:
            return -np.inf
        lower, upper = read if row[read[1]] > 0 else read[::-1]
        chained = self.chain[lower] >= 0 and self.chain[lower] == self.chain[upper]
        return 0.0 if chained and self.rank[lower] < self.rank[upper] else -np.inf


Form = Hulls | Arrangement | Reconciled


class OutputClaim(Heading):
    """A validated claim: the rows, and the forms of all members."""

    def __init__(self, content: Content) -> None:
        arrays = dict(content.arrays)
        claim = fields(content.claim, KEYS, "the claim")
        super().__init__(claim)

        def take(name: str, shape: tuple[int | None, ...], dtype: Any) -> Any:
            if name not in arrays:
                raise Rejected(f"the array {name!r} is missing")
            return checked(arrays.pop(name), name, shape, dtype)

        size = self.output_size
        self.matrix: Array = take("matrix", (None, size), np.float64)
        self.bound: Array = take("bound", (len(self.matrix),), np.float64)
        self.form_list: list[Form] = []
        for number in range(whole(claim["forms"], "forms")):
            start = f"form{number}."
            if f"{start}points" in arrays:
                points = take(f"{start}points", (None, size), np.float64)
                term = take(f"{start}term", (len(points),), np.int64)
                if not len(points):
                    raise Rejected(f"form {number} has no points")
                self.form_list.append(Hulls(points, term))
                continue
            if f"{start}basis" in arrays:
                self.form_list.append(self._reconciled(start, take))
                continue
            low, negated = (take(start + name, (size,), None) for name in ("low", "negated"))
            chain, rank, total = (
                take(start + name, (size,), np.int64) for name in ("chain", "rank", "total")
            )
            value = take(f"{start}value", (None,), np.float64)
            if (total >= len(value)).any():
                raise Rejected(f"form {number} names totals that have no value")
            self.form_list.append(Arrangement(low, negated, chain, rank, total, value))
        if not len(self.matrix) or not self.form_list:
            raise Rejected("the certificate has no rule or no member")
        factors(self.matrix, "matrix")
        if arrays:
            raise Rejected(f"the archive holds arrays of no use, such as {sorted(arrays)[:5]}")

    def _reconciled(self, start: str, take: Any) -> Reconciled:
        size = self.output_size
        basis = take(f"{start}basis", (size, None), np.float64)
        free = basis.shape[1]
        rows = take(f"{start}row", (None, size), np.float64)
        return Reconciled(
            take(f"{start}offset", (size,), np.float64),
            take(f"{start}slope", (size, self.input_size), np.float64),
            basis,
            low=take(f"{start}low", (free,), None),
            negated=take(f"{start}negated", (free,), None),
            chain=take(f"{start}chain", (free,), np.int64),
            rank=take(f"{start}rank", (free,), np.int64),
            row=rows,
            at_least=take(f"{start}least", (len(rows),), np.float64),
        )

    def verify_stored(self, state: MemberState, used: NDArray[np.integer[Any]], what: str) -> None:
        """Rejected unless the used members (by number) of a stored stack keep all rows."""
        for form in _forms(state, used, self.matrix):
            self.verify(form, what)

    def verify(self, form: Form, what: str) -> float:
        """How far `form` is from keeping all rows, relative to their terms; or Rejected."""
        form = form.examined(what)
        least = form.least(self.matrix)
        scale = np.abs(self.bound) + np.abs(self.matrix) @ form.sizes()
        # the products here are sums of as many numbers as there are outputs and terms
        error = (self.output_size + form.terms() + 4) * ROUNDOFF * scale
        missed = self.bound - least + error
        broken = ~(missed <= EXACT * scale)
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            raise Rejected(
                f"not proven: {linear_sum(self.matrix[row], 'y')} of {what} can be as low as "
                f"{least[row]:.9g}, its bound is {self.bound[row]:.9g}",
                code="not-proven",
            )
        return float((missed / np.maximum(scale, UNDERFLOW)).max())


@dataclass(frozen=True)
class OutputVerdict:
    """What has been proven of outputs; all else is `Rejected`."""

    claim: OutputClaim
    digest: str
    worst: float
    seconds: float

    def __str__(self) -> str:
        claim = self.claim
        lines = [
            f"{linear_sum(claim.matrix[row], 'y')} >= {exact(claim.bound[row])}"
            for row in range(min(len(claim.matrix), SHOWN))
        ]
        if len(claim.matrix) > SHOWN:
            lines.append(f"... and {len(claim.matrix) - SHOWN} more.")
        return "\n".join(
            [
                f"Proven: {claim.requirement!r} of {claim.title}.",
                f"  At every input, each of {len(claim.matrix)} rules holds to {EXACT:g} of the "
                "sizes of its terms.",
                f"  This holds for every mixture of members of {len(claim.form_list)} form(s), "
                "whatever they compute.",
                "  Rounding of the prediction is not included: see 'Structure' in "
                "docs/mathematics.md.",
                *(f"  {line}" for line in lines),
                f"  Forms keep them to {self.worst:.2g}, {self.seconds:.1f} s.",
                f"  Certificate sha256 {self.digest}.",
            ]
        )


def check_outputs(content: Content) -> OutputVerdict:
    """Verify a certificate of rules on outputs; Rejected unless every form keeps all of them."""
    started = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):
        claim = OutputClaim(content)
        found = [claim.verify(one, f"form {number}") for number, one in enumerate(claim.form_list)]
    return OutputVerdict(claim, content.digest, max(found), time.perf_counter() - started)


def _forms(state: MemberState, used: NDArray[np.integer[Any]], matrix: Array) -> Iterator[Form]:
    arrays, config = state.arrays, state.config
    if state.kind == "shielded":
        yield from _shielded_forms(state, used, matrix)
    elif state.kind == "arranged":
        yield _arrangement(config["set"], arrays["set.low"], arrays["set.high"])
    elif state.kind == "reconciled":
        yield from _reconciled_forms(config["reconciliation"], below(arrays, "reconciliation."))
    elif state.kind == "constant":
        for values in arrays["values"][used]:
            yield Hulls(values[None], np.zeros(1, np.int64))
    elif state.kind == "tree" and config["link"] == "softmax":
        yield Hulls(np.eye(arrays["value"].shape[3]), np.zeros(arrays["value"].shape[3], np.int64))
    elif state.kind == "tree" and config["link"] == "identity":
        for number in used.tolist():
            yield _leaves({name: arrays[name][number] for name in LEAVES})
    else:
        raise Rejected(f"members of kind {state.kind!r} do not keep the rules by construction")


LEAVES = ("left", "right", "value", "initial", "factor")


def _shielded_forms(
    state: MemberState, used: NDArray[np.integer[Any]], matrix: Array
) -> Iterator[Form]:
    """Of members and anchor; a shield must move all outputs that a row reads by one share."""
    shield, record = below(state.arrays, "shield."), state.config["shield"]
    anchor = member_state(record["anchor"], below(shield, "anchor."))
    inner = member_state(state.config["inner"], below(state.arrays, "inner."))
    parts = components(record, shield, matrix.shape[1])
    if any(len(np.unique(parts[row != 0])) > 1 for row in matrix):
        raise Rejected("a shield moves outputs that one rule reads by different shares")
    yield from _forms(inner, used, matrix)
    yield from _forms(anchor, np.zeros(1, np.int64), matrix)


def _reconciled_forms(config: Any, own: Any) -> Iterator[Form]:
    """Of the outputs that are free, and of the anchor where rows are kept by moving towards it."""
    free, size = own["free"], len(own["offset"])
    k = len(free)
    shapes = {
        "basis": (size, k),
        "slope": (size, own["slope"].shape[1]),
        "low": (k,),
        "high": (k,),
        "matrix": (len(own["bound"]), size),
        "anchor": (size,),
    }
    if any(own[name].shape != shape for name, shape in shapes.items()):
        raise Rejected("the arrays of a stored reconciliation do not fit")
    if k and not (free.min() >= 0 and free.max() < size and len(set(free.tolist())) == k):
        raise Rejected("the free outputs of a stored reconciliation are not outputs, each once")
    chain, rank = (np.full(k, -1, np.int64) for _ in range(2))
    for number, one in enumerate(config["chains"]):
        if (chain[one] >= 0).any() or len(set(one)) < len(one):
            raise Rejected("chains of a stored reconciliation have outputs in common")
        chain[one], rank[one] = number, np.arange(len(one))
    negated = -own["high"].astype(np.float64)
    yield Reconciled(
        own["offset"],
        own["slope"],
        own["basis"],
        low=own["low"],
        negated=negated,
        chain=chain,
        rank=rank,
        row=own["matrix"],
        at_least=own["bound"],
    )
    if not len(own["bound"]):
        return
    anchor = factors(own["anchor"], "the anchor of a stored reconciliation")
    if own["slope"].any() or not (own["matrix"] @ anchor >= own["bound"]).all():
        raise Rejected("the anchor of a stored reconciliation breaks a row that it should restore")
    yield Hulls(anchor[None], np.zeros(1, np.int64))


def _arrangement(config: Any, low: Array, high: Array) -> Arrangement:
    chain, rank, total = (np.full(len(low), -1, np.int64) for _ in range(3))
    for number, one in enumerate(config["chains"]):
        if (chain[one] >= 0).any() or len(set(one)) < len(one):
            raise Rejected("chains of a stored set have outputs in common")
        chain[one], rank[one] = number, np.arange(len(one))
    for number, (one, _) in enumerate(config["totals"]):
        if (total[one] >= 0).any() or len(set(one)) < len(one):
            raise Rejected("totals of a stored set have outputs in common")
        total[one] = number
    low, high = low.astype(np.float64), high.astype(np.float64)  # the negative of a uint8 is none
    _refuse_untidy(config, low, high, total)
    value = np.array([float(one) for _, one in config["totals"]])
    return Arrangement(low, -high, chain, rank, total, value)


def _refuse_untidy(config: Any, low: Array, high: Array, total: Whole) -> None:
    """Rejected where the map of outputs into a stored set would not end in it."""
    if not (low <= high).all():
        raise Rejected("a stored set has a low end above its high one")
    for one in config["chains"]:
        if not (np.all(low[one][:-1] <= low[one][1:]) and np.all(high[one][:-1] <= high[one][1:])):
            raise Rejected("the ends of a stored set are not in order along a chain")
        if len(np.unique(total[one])) > 1:
            raise Rejected("a chain of a stored set is partly in a total")
    for one, value in config["totals"]:
        room = EXACT * (1 + abs(float(value)))
        if not low[one].sum() - room <= float(value) <= high[one].sum() + room:
            raise Rejected("a stored set has a total that its ends do not allow")


def _leaves(tree: dict[str, Any]) -> Hulls:
    """The values of all leaves that can be reached, tree by tree, and where the sum begins."""
    factor = factors(tree["factor"], "the factor of trees")
    points, terms = [tree["initial"][None]], [np.zeros(1, np.int64)]
    for number, (left, right) in enumerate(zip(tree["left"], tree["right"], strict=True)):
        own = np.arange(len(left))
        inner = (left != own) | (right != own)
        reached = own == 0
        reached[left[inner]] = reached[right[inner]] = True
        leaves = np.flatnonzero(reached & ~inner)
        points.append(factor * factors(tree["value"][number][leaves], "a leaf"))
        terms.append(np.full(len(leaves), number + 1))
    return Hulls(np.concatenate(points), np.concatenate(terms))
