"""Equalities `matrix y = offset + slope x` that members keep by how they are built.

A member whose outputs are `offset + slope x + basis z`, whatever z is, keeps them if the three
parts do so by themselves; and so does every mixture of such members, and every point between them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from cg4ai_checker.bands import Array
from cg4ai_checker.claim import Heading, checked, fields, whole
from cg4ai_checker.errors import Rejected
from cg4ai_checker.file import Content
from cg4ai_checker.folder_reader import MemberState, below, member_state
from cg4ai_checker.scale import UNDERFLOW, factors, refuse_large
from cg4ai_checker.words import exact, linear_sum

KEYS = {
    *("kind", "title", "requirement", "input_size", "output_size", "forms", "made_by", "about"),
}
EXACT = 1e-12  # of the sizes of all terms: to which equalities hold
ROUNDOFF = 2.0**-53
SHOWN = 3
DEEPEST = 4  # shields within shields of a stored member
MOST_CROSSED = 2**20  # forms that one shield may make
MOST_NUMBERS = 2**26  # of all forms of one side of a shield, 512 MiB


@dataclass(frozen=True)
class Form:
    """Outputs `offset + slope x + basis z` for some z: (r,), (r, d), (r, k)."""

    offset: Array
    slope: Array
    basis: Array


class EqualityClaim(Heading):
    """A validated claim: the equalities, and the forms of all members."""

    def __init__(self, content: Content) -> None:
        arrays = dict(content.arrays)
        claim = fields(content.claim, KEYS, "the claim")
        super().__init__(claim)

        def take(name: str, shape: tuple[int | None, ...]) -> Array:
            if name not in arrays:
                raise Rejected(f"the array {name!r} is missing")
            taken: Array = checked(arrays.pop(name), name, shape, np.float64)
            return taken

        self.matrix = take("matrix", (None, self.output_size))
        self.offset = take("offset", (len(self.matrix),))
        self.slope = take("slope", (len(self.matrix), self.input_size))
        self.forms = [
            Form(
                take(f"form{number}.offset", (self.output_size,)),
                take(f"form{number}.slope", (self.output_size, self.input_size)),
                take(f"form{number}.basis", (self.output_size, None)),
            )
            for number in range(whole(claim["forms"], "forms"))
        ]
        if not len(self.matrix):
            raise Rejected("the certificate has no equality")
        factors(self.matrix, "matrix")
        if arrays:
            raise Rejected(f"the archive holds arrays of no use, such as {sorted(arrays)[:5]}")

    def verify_stored(self, state: MemberState, used: NDArray[np.integer[Any]], what: str) -> None:
        """Rejected unless the used members (by number) of a stored stack keep all equalities."""
        for form in forms_of(state, used):
            self.verify(form, what)

    def verify(self, form: Form, what: str) -> float:
        """How far `form` is from keeping all equalities, relative to their terms; or Rejected.

        Nothing is added for underflow: slope and basis meet inputs and z of any size.
        """
        if form.slope.shape != (self.output_size, self.input_size):
            raise Rejected(
                f"{what} has other inputs or outputs than the certificate's", code="altered"
            )
        size = np.abs(self.matrix)
        worst = 0.0
        for name, stored, wanted in (
            ("offset", form.offset[:, None], self.offset[:, None]),
            ("slope", form.slope, self.slope),
            ("basis", form.basis, np.zeros((len(self.matrix), 1))),
        ):
            part = factors(stored, f"the {name} of {what}")
            refuse_large(self.matrix, part)
            scale = size @ np.abs(part) + np.abs(wanted)
            # the products here are sums of as many numbers as there are outputs
            error = (self.output_size + 4) * ROUNDOFF * scale
            missed = np.abs(self.matrix @ part - wanted) + error
            broken = ~(missed <= EXACT * scale)
            if broken.any():
                row, column = np.argwhere(broken)[0]
                raise Rejected(
                    f"not proven: the {name} of {what} misses equality {row} by "
                    f"{missed[row, column]:.3g}, its terms have the size {scale[row, column]:.3g}",
                    code="not-proven",
                )
            worst = max(worst, float((missed / np.maximum(scale, UNDERFLOW)).max(initial=0.0)))
        return worst


@dataclass(frozen=True)
class EqualityVerdict:
    """What has been proven of equalities; all else is `Rejected`."""

    claim: EqualityClaim
    digest: str
    worst: float
    seconds: float

    def __str__(self) -> str:
        claim = self.claim
        lines = [
            f"Equality {row}: {linear_sum(claim.matrix[row], 'y')} == "
            f"{linear_sum(claim.slope[row], 'x', exact(claim.offset[row]))}"
            for row in range(min(len(claim.matrix), SHOWN))
        ]
        if len(claim.matrix) > SHOWN:
            lines.append(f"... and {len(claim.matrix) - SHOWN} more.")
        return "\n".join(
            [
                f"Proven: {claim.requirement!r} of {claim.title}.",
                f"  At every input, each of {len(claim.matrix)} equalities holds to {EXACT:g} of "
                "the sizes of its terms.",
                f"  This holds for every mixture of members of {len(claim.forms)} form(s), "
                "whatever they compute.",
                "  Rounding of the prediction is not included: see 'Structure' in "
                "docs/mathematics.md.",
                *(f"  {line}" for line in lines),
                f"  Coefficients keep them to {self.worst:.2g}, {self.seconds:.1f} s.",
                f"  Certificate sha256 {self.digest}.",
            ]
        )


def check_equality(content: Content) -> EqualityVerdict:
    """Verify a certificate of equalities; Rejected unless every form keeps all of them."""
    started = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):
        claim = EqualityClaim(content)
        found = [claim.verify(form, f"form {number}") for number, form in enumerate(claim.forms)]
    return EqualityVerdict(claim, content.digest, max(found), time.perf_counter() - started)


def forms_of(state: MemberState, used: NDArray[np.integer[Any]], depth: int = 0) -> Iterator[Form]:
    """The forms of the used members (by number) of a stored stack; Rejected if one has none.

    Each shield multiplies them, so that only few may be around each other.
    """
    arrays = state.arrays
    if state.kind == "shielded":
        if depth == DEEPEST:
            raise Rejected(
                f"members are behind more than {DEEPEST} shields, too many to be read",
                code="memory",
            )
        shield = below(arrays, "shield.")
        record = state.config["shield"]
        anchor = member_state(record["anchor"], below(shield, "anchor."))
        anchors = _kept(forms_of(anchor, np.zeros(1, int), depth + 1))
        inner = member_state(state.config["inner"], below(arrays, "inner."))
        own = _kept(forms_of(inner, used, depth + 1))
        parts = components(record, shield, len(anchors[0].offset))
        yield from (*own, *anchors, *_crossed(own, anchors, parts))
    elif state.kind == "completed":
        yield Form(*(arrays[f"completion.{name}"] for name in ("offset", "slope", "basis")))
    elif state.kind == "reconciled":
        stored = below(arrays, "reconciliation.")
        yield Form(*(stored[name] for name in ("offset", "slope", "basis")))
        if len(stored["bound"]):  # outputs lie between these and the anchor
            size = len(stored["anchor"])
            nothing = np.broadcast_to(0.0, stored["slope"].shape)
            yield Form(stored["anchor"], nothing, np.zeros((size, 0)))
    elif state.kind == "constant":
        for values in arrays["values"][used]:
            nothing = np.broadcast_to(0.0, (len(values), int(state.config["input_size"])))
            yield Form(values, nothing, np.zeros((len(values), 0)))
    elif state.kind == "network" and state.config["output"] == "linear":
        yield from _network_forms(state.config, arrays, used)
    else:
        raise Rejected(f"members of kind {state.kind!r} keep no equality by how they are built")


def _kept(forms: Iterator[Form]) -> list[Form]:
    """All of them, if memory has room."""
    kept, numbers = [], 0
    for form in forms:
        parts = (form.offset, form.slope, form.basis)
        numbers += sum(part.size for part in parts if part.flags.owndata)  # else of the folder
        if numbers > MOST_NUMBERS:
            raise Rejected(
                "members behind shields have too many forms to be checked", code="memory"
            )
        kept.append(form)
    return kept


def components(record: Any, arrays: Any, size: int) -> NDArray[np.integer[Any]]:
    """(size,): which outputs a stored shield moves together; those it leaves alone may be any.

    Outputs are connected that one rule reads, or that are named together in `coupled`.
    """
    sets = [np.isin(np.arange(size), group)[None] for group in record["coupled"]]
    for number, guard in enumerate(record["guards"]):
        own = below(arrays, f"guard.{number}.")
        if guard["rules"] in ("affine", "shared"):
            reads = own["constant"] != 0
            reads[own["rule"], own["output"]] |= own["value"] != 0
        elif guard["rules"] == "quadratic":
            reads = own["linear"] != 0
            if "square" in own:
                reads |= (own["square"] != 0).any(1) | (own["square"] != 0).any(2)
            else:  # made before 0.8
                reads |= (own["factor"] != 0).any(-1)
        else:
            reads = np.ones((1, size), bool)
        sets.append(reads)
    # outputs and sets are the nodes: pairs of outputs would be as many as their square
    reads = sparse.csr_matrix(np.concatenate(sets).astype(np.int64))
    graph = sparse.bmat([[None, reads.T], [reads, None]], format="csr")
    labels = connected_components(graph, directed=False)[1][:size]
    return np.asarray(np.unique(labels, return_inverse=True)[1])


def _crossed(
    own: list[Form], anchors: list[Form], parts: NDArray[np.integer[Any]]
) -> Iterator[Form]:
    """Outputs of a member with one component, of several, taken from the anchor.

    A shield gives f + sum_c theta_c (g_c - f) with these as g_c: it keeps what all of them keep.
    """
    if not parts.any():
        return
    if len(own) * len(anchors) * (int(parts.max()) + 1) > MOST_CROSSED:
        raise Rejected(
            f"a shield makes more than {MOST_CROSSED} forms, too many to be checked", code="memory"
        )
    for one, anchor in product(own, anchors):
        for number in range(int(parts.max()) + 1):
            taken = (parts == number)[:, None]
            yield Form(
                np.where(taken[:, 0], anchor.offset, one.offset),
                np.where(taken, anchor.slope, one.slope),
                np.concatenate(
                    [np.where(taken, 0, one.basis), np.where(taken, anchor.basis, 0)], 1
                ),
            )


def _network_forms(config: Any, arrays: Any, used: NDArray[np.integer[Any]]) -> Iterator[Form]:
    """The last layer and what skips the others; inputs that are rescaled have no exact form."""
    if {"normalise_shift", "normalise_scale"} & set(arrays):
        raise Rejected("networks that rescale their inputs keep no equality exactly")
    last = len(config["hidden"])
    for number in used.tolist():
        offset, basis = arrays[f"bias_{last}"][number], arrays[f"weight_{last}"][number]
        slope = np.zeros((len(offset), int(config["input_size"])))
        if config["skip"]:
            slope = arrays["skip"][number]
        elif last == 0:
            slope, basis = basis, np.zeros((len(offset), 0))
        yield Form(offset, slope, basis)
