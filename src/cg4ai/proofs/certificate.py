"""Write a proven certification as a file that `cg4ai check` can verify without trusting us.

The file holds all that the claim is about: region, rules, members, weights, and for every rule
the tree of cells that covers the region. docs/guarantees.md describes it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from cg4ai import __version__
from cg4ai.ensemble.claims import compute_subject_digest
from cg4ai.ensemble.constructed import Built
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.parallel import iterate_in_order
from cg4ai.proofs.bounds.limits import find_root_box
from cg4ai.proofs.records import (
    Certification,
    Totals,
    pack_certification,
    pack_trees,
    unpack_certification,
)
from cg4ai.proofs.rule_forms import ProofRules, find_proof_rules
from cg4ai.proofs.shields import find_shield
from cg4ai.proofs.structure_certificates import (
    NAMES,
    Arrays,
    build_construction_certificate,
    compute_construction_subject,
    encode_claim,
    seal_arrays,
)
from cg4ai.proofs.sums import find_sum_groups
from cg4ai.rules import Requirement
from cg4ai.rules.labels import Margin, Probability
from cg4ai.rules.linear import Linear
from cg4ai.rules.quadratic import Quadratic
from cg4ai.rules.regions import Region
from cg4ai.runs import files
from cg4ai_checker import OutOfTime, Rejected, check
from cg4ai_checker.cells import check_tree

CERTIFICATE_FILE = "certificate.cg4ai"
CERTIFIABLE = ("network", "tree", "constant")
WEIGHT_SUM = 1e-9  # how far from one the weights of a block may sum in a certificate
LONGEST_TEXT = 300  # of titles and names; the checker, which shares no code, takes as many
# what the arrays of a polytope's record are called in the file
ROW_NAMES = {"matrix": "region_rows", "limit": "region_most"}


def write_certificate(
    path: str | Path,
    ensemble: Ensemble | nn.Module,
    *,
    requirement: Requirement,
    certification: Certification,
    region: Region | None = None,
    title: str = "a mixture",
    rule_names: Sequence[str] | None = None,
    totals: Totals | None = None,
) -> str:
    """Write the certificate of a proven requirement, atomically; returns its SHA-256.

    `title` says in words what the mixture is; `rule_names` name the rules, "rule 0" and so on if
    left out; `totals` say what sums of them keep. A certification that is not proven, or of another
    mixture, region or other rules, is refused, and so is what the checker rejects. `region` is that
    given to `certify`, for a rule that names none.
    """
    ensemble, requirement = resolve_subject(ensemble, requirement, region)
    if not certification.subject:
        raise InvalidInput(
            "the certification does not say what it is about; give one that certify returned"
        )
    data = build_certificate(
        ensemble,
        requirement=requirement,
        certification=certification,
        title=title,
        rule_names=rule_names,
        totals=totals,
    )
    if not certification.checked or totals is not None:
        _check(data)
    files.write_bytes(Path(path), data)
    return hashlib.sha256(data.partition(b"\n")[2]).hexdigest()


def resolve_subject(
    ensemble: Ensemble | nn.Module, requirement: Requirement, region: Region | None
) -> tuple[Ensemble, Requirement]:
    """The ensemble that stands for a network, and the rule over the region that is meant."""
    place = region
    if isinstance(ensemble, nn.Module):
        from cg4ai.ensemble.from_module import build_ensemble, find_region

        own = requirement.region
        stated = own if isinstance(own, Region) else find_region(ensemble)
        place = stated if region is None else region
        ensemble = build_ensemble(ensemble, place)
    if isinstance(requirement, Linear | Quadratic | Probability | Margin):
        if requirement.inputs is None and place is None:
            raise InvalidInput(
                f"{requirement.name} does not say where it holds; give region=Box(lower, upper)",
                code="missing-argument",
            )
        return ensemble, requirement if place is None else requirement.place_over(place)
    return ensemble, requirement


def build_certificate(
    ensemble: Ensemble,
    *,
    requirement: Requirement,
    certification: Certification,
    title: str = "a mixture",
    rule_names: Sequence[str] | None = None,
    totals: Totals | None = None,
) -> bytes:
    """What `write_certificate` writes.

    A certification made by hand, which states no subject, is taken as it is: the file claims what
    it says, and checking decides.
    """
    check_texts(title, requirement.name, *(rule_names or ()))
    if isinstance(requirement, Built) or certification.shield == "completion":
        subject = compute_construction_subject(ensemble, requirement)
        if certification.status != "proven" or certification.subject != subject:
            raise InvalidInput(
                f"the certification of {requirement.name} is not proven or of another mixture: "
                "certify the requirement as it is now",
                code="altered",
            )
        return build_construction_certificate(ensemble, requirement, title)
    data = build_claim(
        ensemble,
        find_proof_rules(requirement, output_size=ensemble.output_size),
        region=_certifiable(requirement),
        certification=certification,
        requirement=requirement.name,
        title=title,
        rule_names=rule_names,
        totals=totals,
    )
    if certification.subject:
        _check_subject(certification, ensemble, requirement)
    return data


def build_claim(
    ensemble: Ensemble,
    rules: ProofRules,
    *,
    region: Region,
    certification: Certification,
    requirement: str = "the requirement",
    title: str = "a mixture",
    rule_names: Sequence[str] | None = None,
    totals: Totals | None = None,
) -> bytes:
    """The certificate that these rules, proven as stated, hold for the ensemble in the region."""
    shielded = find_shield(ensemble)
    stated = None if shielded is None else shielded.describe_shield(rules, region)
    names = [f"rule {rule}" for rule in range(len(rules))] if rule_names is None else rule_names
    _check_proven(certification, rules, names)
    words, arrays = _region(region)
    proven = ensemble if shielded is None else shielded.anchor
    parts, member_arrays = _parts(proven)
    arrays |= member_arrays | pack_trees(certification)
    arrays |= rules.arrays
    claim = {
        "title": title,
        "requirement": requirement,
        "region": words,
        "input_size": ensemble.input_size,
        "output_size": ensemble.output_size,
        "blocks": [block.tolist() for block in proven.layout.blocks],
        "shield": stated,
        "parts": parts,
        "rules": [{"name": name} for name in names],
        "margin": max(0.0, min(p.limit - p.bound for p in certification.rules)),
        "made_by": {"cg4ai": __version__},
        "about": {name: ensemble.about[name] for name in NAMES if name in ensemble.about},
    }
    if totals is not None:
        check_texts(*totals.names)
        claim["totals"] = [{"name": name} for name in totals.names]
        arrays |= {"total_of": totals.of_rule, "total_limit": totals.limits}
    groups = find_sum_groups(proven, region, () if shielded is None else shielded.together)
    if (groups >= 0).any():
        arrays |= {"sum_group": groups}
    return seal_arrays(arrays | {"claim": encode_claim(claim)})


def _check(data: bytes) -> None:
    try:
        check(data)
    except Rejected as error:
        raise InvalidInput(
            f"the checker rejects this certificate, so it is not written: {error}", code="rejected"
        ) from error


def verify_certification(
    certification: Certification, ensemble: Ensemble, requirement: Requirement
) -> Certification:
    """A proven certification as `checked`, or as unknown with the checker's reason in its note.

    The checker has the last word, whatever the search found. What is not proven, or was checked
    before, comes back as it is.
    """
    if certification.checked:
        return certification
    rules = find_proof_rules(requirement, output_size=ensemble.output_size)
    return verify_rules(certification, ensemble, rules, region=_certifiable(requirement))


def verify_rules(
    certification: Certification,
    ensemble: Ensemble,
    rules: ProofRules,
    *,
    region: Region,
    time_limit_s: float = math.inf,
    n_jobs: int | None = None,
) -> Certification:
    """As `verify_certification`, for rules in normal form and any region, within a time limit."""
    if certification.status != "proven" or certification.checked:
        return certification
    try:
        data = build_claim(ensemble, rules, region=region, certification=certification)
        each = partial(iterate_in_order, n_jobs=n_jobs, threads=1)
        check(data, time_limit_s=time_limit_s, each=each)
    except (Rejected, InvalidInput) as error:
        return replace(
            certification,
            status="unknown",
            rules=tuple(replace(proof, status="unknown") for proof in certification.rules),
            note=f"the search closed every cell, but the checker says: {error}",
            exhausted=not isinstance(error, OutOfTime),
        )
    return replace(certification, checked=True)


def check_texts(*texts: str) -> None:
    """Refuse what the checker would not print: anything but one line of moderate length."""
    for text in texts:
        if not text.isprintable() or len(text) > LONGEST_TEXT:
            raise InvalidInput(
                f"titles and names in a certificate are one line of at most {LONGEST_TEXT} "
                f"characters without control characters, got {text[:LONGEST_TEXT]!r}: rename it",
                code="bad-name",
            )


def _check_proven(certification: Certification, rules: ProofRules, names: Sequence[str]) -> None:
    if certification.status != "proven":
        raise InvalidInput(
            f"only proven claims become certificates, this certification is "
            f"{certification.status}: {certification.note or 'give it more time or cells'}",
            code="rejected",
        )
    proofs = certification.rules
    if [proof.rule for proof in proofs] != list(range(len(rules))) or len(names) != len(rules):
        raise InvalidInput(
            f"the requirement has {len(rules)} rules, the certification speaks of {len(proofs)} "
            f"and {len(names)} names were given; give those of the same requirement",
            code="shape",
        )
    wrong = [p.rule for p in proofs if p.status != "proven" or p.limit != rules.targets[p.rule]]
    if wrong:
        raise InvalidInput(
            f"rules {wrong[:5]} are not proven, or proven for another limit: certify the "
            "requirement as it is now",
            code="altered",
        )


def _certifiable(requirement: Requirement) -> Region:
    region = requirement.region
    if not isinstance(region, Region):
        raise InvalidInput(
            f"{requirement.name} is not over a Box, Ball or Polytope; only these are certified",
            code="unsupported",
        )
    return region


def _region(region: Region) -> tuple[dict[str, Any], Arrays]:
    """Words of the claim and numbers: the region's record, and the box around it."""
    record = region.record()
    words = {"kind": record.pop("kind"), "norm": record.pop("norm", None)}
    lower, upper = find_root_box(region)
    numbers = {
        ROW_NAMES.get(name, name): np.asarray(value, np.float64) for name, value in record.items()
    }
    return words, {**numbers, "lower": lower, "upper": upper}


def _parts(ensemble: Ensemble) -> tuple[list[dict[str, Any]], Arrays]:
    parts: list[dict[str, Any]] = []
    arrays: Arrays = {}
    total = np.zeros(len(ensemble.layout))
    for number, part in enumerate(ensemble.used):
        state, blocks, weights = part.members.state(), part.blocks, part.weights
        if state.kind not in CERTIFIABLE:
            raise InvalidInput(
                f"members of kind {state.kind!r} cannot be certified; use cg4ai's own networks, "
                "trees, affine or constant members",
                code="unsupported",
            )
        parts.append(
            {
                "kind": state.kind,
                "config": dict(state.config),
                "blocks": blocks.tolist(),
                "arrays": sorted(state.arrays),
            }
        )
        arrays[f"part{number}.weights"] = weights.astype(np.float64)
        arrays |= {f"part{number}.{name}": array for name, array in state.arrays.items()}
        np.add.at(total, blocks, weights)
    if np.abs(total - 1).max() > WEIGHT_SUM:
        worst = int(np.abs(total - 1).argmax())
        raise InvalidInput(
            f"the weights of block {worst} sum to {float(total[worst])!r}; a certificate needs 1 "
            f"within {WEIGHT_SUM:g}: divide the weights of each block by their sum",
            code="range",
        )
    return parts, arrays


# ---- certifications that are not finished ------------------------------------------------------


def save_unfinished(
    folder: Path,
    ensemble: Ensemble,
    requirement: Requirement,
    certification: Certification,
    *,
    number: int = 1,
) -> None:
    """Keep the trees of an unknown certification, so that `load_unfinished` can go on from it."""
    _check_subject(certification, ensemble, requirement)
    files.write_arrays(_unfinished(folder, number), pack_certification(certification))


def load_unfinished(
    folder: Path, ensemble: Ensemble, requirement: Requirement, *, number: int = 1
) -> Certification:
    """What `save_unfinished` kept; an error if it is of another mixture, rules or region."""
    path = _unfinished(folder, number)
    if not path.exists():
        raise RunFolderError(
            f"{folder} holds no unfinished certification ({path.name} is missing): start one "
            "without --resume"
        )
    arrays = files.read_arrays(path)
    try:
        answer = unpack_certification(arrays, status="unknown")
        for proof in answer.rules:
            name = f"rule {proof.rule}"
            if check_tree(proof.dimensions, ensemble.input_size, name=name) != len(
                proof.leaf_bounds
            ):
                raise ValueError(f"{name} has not as many bounds as leaves")
    except (KeyError, IndexError, ValueError) as error:
        raise RunFolderError(f"{path} is damaged: {error}; start anew without --resume") from error
    if answer.subject != _subject(ensemble, requirement):
        raise RunFolderError(
            f"{path} is about another mixture, region or rules than {folder} holds now: "
            "start anew without --resume",
            code="altered",
        )
    return answer


def remove_unfinished(folder: Path, *, number: int = 1) -> None:
    """Forget what was kept, once all is proven."""
    _unfinished(folder, number).unlink(missing_ok=True)


def _unfinished(folder: Path, number: int) -> Path:
    return folder / (
        "certification.safetensors" if number == 1 else f"certification.{number}.safetensors"
    )


def _check_subject(
    certification: Certification, ensemble: Ensemble, requirement: Requirement
) -> None:
    if certification.subject != _subject(ensemble, requirement):
        raise InvalidInput(
            f"the certification is of another mixture, region or rules than {requirement.name} "
            "of this ensemble: certify the requirement as it is now",
            code="altered",
        )


def _subject(ensemble: Ensemble, requirement: Requirement) -> str:
    """The digest of what a certification of this requirement is about."""
    rules = find_proof_rules(requirement, output_size=ensemble.output_size)
    return compute_subject_digest(ensemble, rules, _certifiable(requirement))
