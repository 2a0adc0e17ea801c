"""Certificates of rules on outputs that members keep by how they are built, at every input."""

from __future__ import annotations

import hashlib

from cg4ai import clock
from cg4ai.ensemble.claims import compute_mixture_digest
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.output_sets import find_set_forms
from cg4ai.proofs.records import Certification, build_construction_answer
from cg4ai.proofs.structure_certificates import Arrays, seal_certificate
from cg4ai.rules.output_sets import OutputRule
from cg4ai.runs import files
from cg4ai_checker import Rejected, verdict


def certify_outputs(ensemble: Ensemble, rule: OutputRule) -> Certification:
    """Proven if every member, and the anchor of a shield, shows that it keeps it; else unknown."""
    started = clock.now()
    rule.check(ensemble.input_size, ensemble.output_size)
    note = ""
    try:
        verdict(build_output_certificate(ensemble, rule))
    except Rejected as error:
        note = str(error)
    return build_construction_answer(
        note,
        subject=compute_output_subject(ensemble, rule),
        input_size=ensemble.input_size,
        seconds=clock.now() - started,
    )


def compute_output_subject(ensemble: Ensemble, rule: OutputRule) -> str:
    """The digest of what such a certification is about."""
    content = [compute_mixture_digest(ensemble), ensemble.shield_digest, "outputs", rule.digest]
    return hashlib.sha256(files.json_line(content)).hexdigest()


def build_output_certificate(
    ensemble: Ensemble, rule: OutputRule, title: str = "a mixture"
) -> bytes:
    """The certificate that every member keeps the rule."""
    matrix, bound = rule.output_set(ensemble.output_size).rows
    forms = find_set_forms(ensemble, matrix)
    if not forms:
        raise Rejected(
            "some members do not keep the rules on outputs by construction: arrange them"
        )
    arrays: Arrays = {"matrix": matrix, "bound": bound}
    distinct = {files.arrays_digest(one): one for one in (form.arrays() for form in forms)}
    for number, one in enumerate(distinct.values()):
        arrays |= {f"form{number}.{name}": array for name, array in one.items()}
    claim = {
        "kind": "outputs",
        "title": title,
        "requirement": rule.name,
        "input_size": ensemble.input_size,
        "output_size": ensemble.output_size,
        "forms": len(distinct),
    }
    return seal_certificate(claim, arrays, ensemble)
