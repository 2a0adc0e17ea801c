"""How strongly each single prediction is covered: what is recorded with an ensemble, read back.

Claims are plain data in `ensemble.about["guarantees"]`, so they are saved and loaded with it. Each
names the mixture and the rules it was established for by digest, as a certification does; a claim
about another mixture counts for nothing, and rules that differ are never merged by their name.
`Ensemble.predict(inputs, explain=True)` turns them into a label per input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai.data import arrays
from cg4ai.ensemble.audit import estimate_region_size
from cg4ai.ensemble.constructed import Built, is_constructed
from cg4ai.ensemble.ensemble import GUARANTEES, OUTPUT_NAMES, Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.extras import import_optional
from cg4ai.records import Array, IntArray, Strength
from cg4ai.rules.guards import guard_of
from cg4ai.rules.regions import Region, region_of
from cg4ai.rules.row_sizes import compute_requirement_size
from cg4ai.rules.rows import LinearRows, Rows, compute_shortfall
from cg4ai.rules.violations import predictions, region_violations
from cg4ai.runs import files

if TYPE_CHECKING:
    from cg4ai.proofs.records import Certification
    from cg4ai.rules import Requirement


class HasOptionalDigest(Protocol):
    """Rules that a digest tells apart."""

    @property
    def digest(self) -> str | None: ...


STRENGTH, MOVED, OUTSIDE = "strength", "moved by the shield", "outside the region"  # columns
Labels = NDArray[np.str_]
# a requirement's name and the digest of its rules, None where they have no normal form
Subject = tuple[str, str | None]
# for each such subject (n,) places in WEAKEST_FIRST
Ranks = dict[Subject, IntArray]
WEAKEST_FIRST = (
    Strength.UNVERIFIED,
    Strength.AUDITED,
    Strength.SHIELDED,
    Strength.CERTIFIED,
    Strength.CONSTRUCTED,
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Predictions with what is established about each.

    outputs: what `predict` gives without `explain`.
    labels (n,): the words of `WEAKEST_FIRST`; where several requirements are known, the weakest
        over all of them.
    by_requirement: the label (n,) for each requirement that is recorded or shielded.
    theta (n,): how far a shield moved the prediction towards its anchor; 0 without a shield.
    outside (n,): True where some rule says nothing of the input, which is outside its region.
    names: what the outputs are called; empty where that is not known.
    index: that of the DataFrame which was predicted, if it was one.
    """

    outputs: Any
    labels: Labels
    by_requirement: Mapping[str, Labels]
    theta: Array
    outside: NDArray[np.bool_]
    names: tuple[str, ...] = ()
    index: Any = None

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """What is established, (n,) by name: strengths, the shield's moves, what lies outside."""
        each = {f"{name}: {STRENGTH}": one for name, one in self.by_requirement.items()}
        return {STRENGTH: self.labels, **each, MOVED: self.theta, OUTSIDE: self.outside}

    def to_frame(self) -> Any:
        """All of it as a DataFrame: a column for each output, then `columns`."""
        outputs = torch.as_tensor(self.outputs).numpy(force=True)
        names = self.names or tuple(f"output {k}" for k in range(outputs.shape[1]))
        made = dict(zip(names, outputs.T, strict=True)) | self.columns
        return import_optional("pandas").DataFrame(made, index=self.index)


def compute_mixture_digest(ensemble: Ensemble) -> str:
    """SHA-256 of all that the mixture predicts with: members, weights, blocks and layout."""
    parts = [
        [files.member_digest(part.members.state()), part.blocks.tolist(), part.weights.tolist()]
        for part in ensemble.used
    ]
    layout = [block.tolist() for block in ensemble.layout.blocks]
    return hashlib.sha256(files.json_line([parts, layout])).hexdigest()


def compute_subject_digest(ensemble: Ensemble, rules: HasOptionalDigest, region: Region) -> str:
    """SHA-256 of the mixture, its shield if it has one, rules and region."""
    content = [compute_mixture_digest(ensemble), rules.digest, region.record()]
    if ensemble.shield_digest is not None:
        content.append(ensemble.shield_digest)
    return hashlib.sha256(files.json_line(content)).hexdigest()


def record_certified(
    ensemble: Ensemble, requirement: Requirement, *, certification: Certification
) -> None:
    """Note that the requirement is proven for this mixture at every input of its region.

    `certification` is the proof: what `certify` said of this very mixture, requirement and region,
    of the mixture itself or of what a shield makes of it.
    """
    region = requirement.region
    if not isinstance(region, Region):
        raise InvalidInput(
            f"a certificate covers a region, but {requirement.name} lists its inputs; use "
            "record_audited",
            code="unsupported",
        )
    requirement.check(ensemble.input_size, ensemble.output_size)
    rules = guard_of(requirement, ensemble.output_size).rules
    if certification.status != "proven":
        raise InvalidInput(
            f"only what is proven is recorded as certified; this certification of "
            f"{requirement.name} is {certification.status}",
            code="rejected",
        )
    if not certification.checked:
        raise InvalidInput(
            f"the certification of {requirement.name} was not checked: record what "
            "cg4ai.guarantees.verify_certification returns",
            code="rejected",
        )
    if certification.shield == "completion":  # the checker has read it off the members
        record_constructed(ensemble, requirement)
        return
    subject = ensemble if certification.shield else ensemble.mixture
    if certification.subject != compute_subject_digest(subject, rules, region):
        raise InvalidInput(
            f"the certification is of another mixture, region or rules than {requirement.name} "
            "of this ensemble: certify the requirement as it is now",
            code="altered",
        )
    where = {"region": region.record(), "rules": rules.digest}
    _record(ensemble, certification.strength, requirement.name, where)


def record_constructed(ensemble: Ensemble, rule: Requirement) -> None:
    """Note that every member of this mixture keeps the rule by its structure."""
    if not is_constructed(ensemble, rule):
        raise InvalidInput(
            f"not every member keeps {rule.name} by its structure; put them into "
            "cg4ai.members.CompletedMembers (equalities) or ArrangedMembers, or use record_audited",
            code="unsupported",
        )
    if isinstance(rule, Built):
        where: dict[str, Any] = {"rules": rule.digest}
    else:
        assert isinstance(rule.region, Region)
        rules = guard_of(rule, ensemble.output_size).rules
        where = {"region": rule.region.record(), "rules": rules.digest}
    _record(ensemble, Strength.CONSTRUCTED, rule.name, where)


def record_audited(
    ensemble: Ensemble,
    requirement: Requirement,
    *,
    inputs: Any = None,
    tolerance: float = 1e-6,
) -> int:
    """Recompute the mixture in float64 and note at which inputs it keeps the whole requirement.

    A row may lack `tolerance` x its size, as in `ensemble.audit`.
    A requirement that lists its inputs is recomputed there; over a region give `inputs`
    (n, d), such as those of cuts. Returns how many are noted. Only digests of them are kept, so
    large inputs cost little and are not given away.
    """
    mixture = ensemble.mixture
    requirement.check(ensemble.input_size, ensemble.output_size)
    region = requirement.region
    if isinstance(region, Region):
        if inputs is None:
            raise InvalidInput(
                f"{requirement.name} holds over {region}; give inputs to audit",
                code="missing-argument",
            )
        points = arrays.as_matrix(inputs, "inputs")
        violations = region_violations(mixture, requirement, points)
        allowed = tolerance * estimate_region_size(requirement, mixture).least
        broken = (violations > allowed).any(axis=1) | ~region.contains(points)
        form = requirement.normal_form
        about = None if form is None else form.digest
    else:
        if inputs is not None:
            raise InvalidInput(
                f"{requirement.name} lists its own inputs; give no others", code="conflict"
            )
        rows, broken = _listed(mixture, requirement, tolerance)
        points, about = rows.inputs, _rows_digest(rows)
    kept = sorted({*_digests(points)} - {*_digests(points[broken])})
    _record(ensemble, Strength.AUDITED, requirement.name, {"inputs": kept, "rules": about})
    return len(kept)


def _listed(
    mixture: Ensemble, requirement: Requirement, tolerance: float
) -> tuple[Rows, NDArray[np.bool_]]:
    """The rows at listed inputs, and at which of these some row is missed."""
    rows = requirement.rows(0)
    if rows is None or (isinstance(rows, LinearRows) and rows.index is None):
        raise InvalidInput(
            f"the rows of {requirement.name} sum over many inputs, so they label no single "
            "prediction; use ensemble.audit for them",
            code="unsupported",
        )
    with torch.no_grad():
        outputs = predictions(mixture, rows.inputs)
        values = rows.values(outputs).numpy()
    size = compute_requirement_size(
        requirement, mixture.output_size, outputs=lambda: float(outputs.abs().max())
    )
    missed = np.flatnonzero(
        compute_shortfall(rows.bounds, values) > tolerance * size.compute_row_sizes(rows.bounds)
    )
    broken = np.zeros(len(rows.inputs), bool)
    broken[rows.index[missed] if isinstance(rows, LinearRows) else missed] = True  # type: ignore[index]
    return rows, broken


def _rows_digest(rows: Rows) -> str:
    parts = [rows.inputs, rows.bounds]
    if isinstance(rows, LinearRows):
        parts.append(rows.coefficients)
    total = hashlib.sha256()
    for array in parts:
        total.update(f"{array.shape}".encode())
        total.update(np.ascontiguousarray(array, np.float64).tobytes())
    return total.hexdigest()


def _record(
    ensemble: Ensemble, strength: Strength, requirement: str, where: dict[str, Any]
) -> None:
    claim = {
        "strength": strength,
        "requirement": requirement,
        "mixture": compute_mixture_digest(ensemble),
    }
    # a new list: others may share the old one through a copy of `about`
    ensemble.about[GUARANTEES] = [*ensemble.about.get(GUARANTEES, []), claim | where]


def _claims(ensemble: Ensemble) -> list[dict[str, Any]]:
    """All that is recorded, as far as it must be texts; InvalidInput where it is not."""
    claims = ensemble.about.get(GUARANTEES, [])
    if not isinstance(claims, list) or not all(map(_readable, claims)):
        raise InvalidInput(
            f"a claim in about[{GUARANTEES!r}] cannot be read; record claims with "
            "cg4ai.ensemble.claims.record_certified and record_audited",
            code="bad-file",
        )
    return claims


def _readable(claim: Any) -> bool:
    if not isinstance(claim, dict) or not isinstance(claim.get("inputs", []), list):
        return False
    texts = [claim.get("requirement"), *claim.get("inputs", [])]
    stated = claim.get("rules")
    return all(isinstance(text, str) for text in texts) and isinstance(stated, str | None)


def find_recorded_ranks(ensemble: Ensemble, inputs: Array) -> Ranks:
    """For all rules with a claim about this mixture: the strongest that is known at each input."""
    claims = _claims(ensemble)
    if not claims:
        return {}
    own, digests = compute_mixture_digest(ensemble), np.array(_digests(inputs))
    ranks: Ranks = {}
    for claim in claims:
        try:
            subject, strength = (claim["requirement"], claim["rules"]), claim["strength"]
            if claim["mixture"] != own:
                continue
            if strength in (Strength.CERTIFIED, Strength.SHIELDED):
                covered = region_of(claim["region"]).covers(inputs)
            elif strength == Strength.CONSTRUCTED:
                covered = np.ones(len(inputs), bool)
                if "region" in claim:  # else at every input
                    covered = region_of(claim["region"]).covers(inputs)
            elif strength == Strength.AUDITED:
                covered = np.isin(digests, claim["inputs"])
            else:
                raise InvalidInput(f"its strength is {strength!r}", code="bad-file")
        except (KeyError, TypeError, InvalidInput) as error:
            raise InvalidInput(
                f"a claim in about[{GUARANTEES!r}] cannot be read ({error}); record claims with "
                "cg4ai.ensemble.claims.record_certified and record_audited",
                code="bad-file",
            ) from error
        strengthen(ranks, subject, compute_rank(covered, Strength(strength)))
    return ranks


def compute_rank(covered: NDArray[np.bool_], strength: Strength) -> IntArray:
    """(n,): the place of `strength` among all where covered, that of UNVERIFIED elsewhere."""
    return np.where(covered, WEAKEST_FIRST.index(strength), 0)


def strengthen(ranks: Ranks, subject: Subject, more: IntArray) -> None:
    """Note what else is known of the same rules."""
    ranks[subject] = np.maximum(ranks.get(subject, more), more)


def build_explanation(
    ensemble: Ensemble, inputs: Array, outputs: Array, *, ranks: Ranks, theta: Array
) -> Explanation:
    """Labels by requirement: the weakest of all rules that go by its name.

    A name known only from claims about another mixture is unverified.
    """
    words = np.array(WEAKEST_FIRST)
    nothing = np.zeros(len(inputs), np.int64)
    claimed = [claim["requirement"] for claim in _claims(ensemble)]
    named = {}
    for name in dict.fromkeys([*claimed, *(name for name, _ in ranks)]):
        own = [each for subject, each in ranks.items() if subject[0] == name]
        named[name] = np.min(own or [nothing], axis=0)
    return Explanation(
        outputs,
        words[np.min(list(named.values()) or [nothing], axis=0)],
        {name: words[each] for name, each in named.items()},
        theta,
        ensemble.find_outside(inputs),
        tuple(map(str, ensemble.about.get(OUTPUT_NAMES, ()))),
    )


def _digests(inputs: Array) -> list[str]:
    """One per input (n, d), equal only for equal numbers."""
    plain = np.ascontiguousarray(inputs, np.float64) + 0.0  # minus zero becomes zero
    return [hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in plain]
