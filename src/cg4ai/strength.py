"""How strongly each single prediction is covered: what is recorded with an ensemble, read back.

Claims are plain data in `ensemble.about["guarantees"]`, so they are saved and loaded with it. Each
names the mixture it was established for by digest; a claim about another mixture counts for
nothing. `Ensemble.predict(inputs, explain=True)` turns them into a label per input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai import arrays, storage
from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.regions import Ball, Box, Region
from cg4ai.rows import LinearRows
from cg4ai.separation.evaluation import predictions, region_violations

if TYPE_CHECKING:
    from cg4ai.ensemble import Ensemble
    from cg4ai.requirements import Requirement

Labels = NDArray[np.str_]
GUARANTEES = "guarantees"
WEAKEST_FIRST = ("unverified", "audited", "shielded", "certified")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Predictions with what is established about each.

    outputs: what `predict` gives without `explain`.
    labels (n,): "certified", "shielded", "audited" or "unverified"; where several requirements are
        known, the weakest over all of them.
    by_requirement: the label (n,) for each requirement that is recorded or shielded.
    theta (n,): how far a shield moved the prediction towards its anchor; 0 without a shield.
    """

    outputs: Any
    labels: Labels
    by_requirement: Mapping[str, Labels]
    theta: Array


def record_certified(ensemble: Ensemble, requirement: Requirement) -> None:
    """Note that the requirement is proven for this mixture at every input of its Box or Ball.

    Call it only with a proof in hand: what is recorded here is believed when labels are given.
    """
    region = requirement.region
    if not isinstance(region, Box | Ball):
        raise InvalidInput(
            f"a certificate covers a Box or a Ball, but {requirement.name} lists its inputs; "
            "use record_audited"
        )
    _record(ensemble, "certified", requirement.name, {"region": region_record(region)})


def record_audited(
    ensemble: Ensemble,
    requirement: Requirement,
    *,
    inputs: Any = None,
    tolerance: float = 1e-6,
) -> int:
    """Recompute the mixture in float64 and note at which inputs it keeps the whole requirement.

    A requirement that lists its inputs is recomputed there; over a Box or Ball give `inputs`
    (n, d), such as those of cuts. Returns how many are noted. Only digests of them are kept, so
    large inputs cost little and are not given away.
    """
    mixture = ensemble.unshielded
    requirement.check(ensemble.input_size, ensemble.output_size)
    region = requirement.region
    if isinstance(region, Box | Ball):
        if inputs is None:
            raise InvalidInput(f"{requirement.name} holds over {region}; give inputs to audit")
        points = arrays.matrix(inputs, "inputs")
        violations = region_violations(mixture, requirement, points)
        broken = (violations > tolerance).any(axis=1) | ~region.contains(points)
    else:
        if inputs is not None:
            raise InvalidInput(f"{requirement.name} lists its own inputs; give no others")
        points, broken = _listed(mixture, requirement, tolerance)
    kept = sorted({*_digests(points)} - {*_digests(points[broken])})
    _record(ensemble, "audited", requirement.name, {"inputs": kept})
    return len(kept)


def _listed(
    mixture: Ensemble, requirement: Requirement, tolerance: float
) -> tuple[Array, NDArray[np.bool_]]:
    """The listed inputs, and at which of them some row is missed."""
    rows = requirement.rows(0)
    if rows is None or (isinstance(rows, LinearRows) and rows.index is None):
        raise InvalidInput(
            f"the rows of {requirement.name} sum over many inputs, so they label no single "
            "prediction; use ensemble.audit for them"
        )
    with torch.no_grad():
        values = rows.values(predictions(mixture, rows.inputs)).numpy()
    missed = np.flatnonzero(~(values >= rows.bounds - tolerance))
    broken = np.zeros(len(rows.inputs), bool)
    broken[rows.index[missed] if isinstance(rows, LinearRows) else missed] = True  # type: ignore[index]
    return rows.inputs, broken


def _record(ensemble: Ensemble, strength: str, requirement: str, where: dict[str, Any]) -> None:
    claim = {"strength": strength, "requirement": requirement, "mixture": mixture_digest(ensemble)}
    # a new list: others may share the old one through a copy of `about`
    ensemble.about[GUARANTEES] = [*ensemble.about.get(GUARANTEES, []), claim | where]


def mixture_digest(ensemble: Ensemble) -> str:
    """SHA-256 of all that the mixture predicts with: members, weights, blocks and layout."""
    parts = [
        [storage.member_digest(part.members.state()), part.blocks.tolist(), part.weights.tolist()]
        for part in ensemble.parts
    ]
    layout = [block.tolist() for block in ensemble.layout.blocks]
    return hashlib.sha256(storage.json_line([parts, layout])).hexdigest()


def recorded_labels(ensemble: Ensemble, inputs: Array) -> dict[str, Labels]:
    """For each requirement with a claim about this mixture: the strongest label at each input."""
    claims = ensemble.about.get(GUARANTEES, [])
    if not claims:
        return {}
    own = mixture_digest(ensemble)
    digests = np.array(_digests(inputs))
    labels: dict[str, Labels] = {}
    for claim in claims:
        try:
            strength, name = claim["strength"], claim["requirement"]
            known = labels.setdefault(name, uniform("unverified", len(inputs)))
            if claim["mixture"] != own:
                continue
            if strength == "certified":
                covered = restored_region(claim["region"]).contains(inputs)
            elif strength == "audited":
                covered = np.isin(digests, claim["inputs"])
            else:
                raise InvalidInput(f"its strength is {strength!r}")
        except (KeyError, TypeError, InvalidInput) as error:
            raise InvalidInput(
                f"a claim in about[{GUARANTEES!r}] cannot be read ({error}); record claims with "
                "cg4ai.strength.record_certified and record_audited"
            ) from error
        labels[name] = strongest(known, np.where(covered, strength, "unverified"))
    return labels


def uniform(label: str, count: int) -> Labels:
    """`count` times the same label."""
    return np.full(count, label, dtype="<U10")


def strongest(one: Labels, other: Labels) -> Labels:
    """The stronger of two labels at each input."""
    return _of_rank(np.maximum(_rank(one), _rank(other)))


def weakest(labels: Mapping[str, Labels], count: int) -> Labels:
    """The weakest of all at each input; without any, "unverified"."""
    if not labels:
        return uniform("unverified", count)
    return _of_rank(np.min([_rank(own) for own in labels.values()], axis=0))


def _rank(labels: Labels) -> NDArray[np.int64]:
    return np.array([WEAKEST_FIRST.index(label) for label in labels], np.int64)


def _of_rank(ranks: NDArray[np.int64]) -> Labels:
    return np.array(WEAKEST_FIRST, dtype="<U10")[ranks]


def _digests(inputs: Array) -> list[str]:
    """One per input (n, d), equal only for equal numbers."""
    plain = np.ascontiguousarray(inputs, np.float64) + 0.0  # minus zero becomes zero
    return [hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in plain]


def region_record(region: Region) -> dict[str, Any]:
    """A region as JSON, for `restored_region`."""
    if isinstance(region, Box):
        return {"kind": "box", "lower": region.lower.tolist(), "upper": region.upper.tolist()}
    centre = region.centre.tolist()
    return {"kind": "ball", "centre": centre, "radius": region.radius, "norm": region.norm}


def restored_region(record: Mapping[str, Any]) -> Region:
    """The region that `region_record` described; KeyError or InvalidInput if it is damaged."""
    if record["kind"] == "box":
        return Box(record["lower"], record["upper"])
    if record["kind"] == "ball":
        return Ball(record["centre"], record["radius"], record["norm"])
    raise InvalidInput(f"a region is a box or a ball, got {record['kind']!r}")
