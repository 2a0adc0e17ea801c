"""How certificates are written: named arrays and a claim in JSON, sealed by their digest.

Those of rules that members keep by how they are built, at every input, are made here.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cg4ai import __version__, clock
from cg4ai.ensemble.claims import compute_mixture_digest
from cg4ai.ensemble.constructed import Built, find_forms, keeps_capped
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.output_sets import find_set_forms
from cg4ai.members.structure import OutputForm
from cg4ai.proofs.records import Certification, build_construction_answer
from cg4ai.records import Array
from cg4ai.rules import Requirement
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.box import Box
from cg4ai.rules.equality import Equality
from cg4ai.rules.output_sets import OutputRule
from cg4ai.rules.regions import Region
from cg4ai.rules.shapes import Monotone, Shape
from cg4ai.runs import files
from cg4ai_checker import Rejected, verdict

# what a mixture says of its inputs and outputs, without which they could be taken for others
NAMES = ("features", "outputs", "target", "task", "scores")

Arrays = dict[str, NDArray[Any]]


def encode_claim(claim: Mapping[str, Any]) -> NDArray[np.uint8]:
    """JSON as the bytes that a certificate holds."""
    text = json.dumps(files.to_jsonable(claim), sort_keys=True, allow_nan=False)
    return np.frombuffer(text.encode(), np.uint8)


def seal_arrays(arrays: Arrays) -> bytes:
    """Arrays as the bytes of a certificate file: the line with the digest, then the archive.

    They are in the order of their names, so that the same claim and proof are the same bytes,
    whether members were just trained or come from a file.
    """
    archive = io.BytesIO()
    named = {name: np.asarray(arrays[name], order="C") for name in sorted(arrays)}
    np.savez(archive, allow_pickle=False, **named)
    content = archive.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    return f"cg4ai-certificate 3 sha256 {digest}\n".encode() + content


def seal_certificate(claim: Mapping[str, Any], arrays: Arrays, ensemble: Ensemble) -> bytes:
    """The bytes of a certificate of the claim about an ensemble, proven by the arrays.

    The claim also says what made it and what the ensemble says of its inputs and outputs.
    """
    about = {name: ensemble.about[name] for name in NAMES if name in ensemble.about}
    whole = {**claim, "made_by": {"cg4ai": __version__}, "about": about}
    return seal_arrays(arrays | {"claim": encode_claim(whole)})


class Statement(NamedTuple):
    """What a certificate says of a rule that members keep by how they are built, and shows."""

    claim: dict[str, Any]
    arrays: Arrays


def certify_construction(ensemble: Ensemble, rule: Requirement) -> Certification:
    """Proven if the checker sees that every member that is used keeps it; unknown if not."""
    started = clock.now()
    rule.check(ensemble.input_size, ensemble.output_size)
    note = ""
    try:
        verdict(build_construction_certificate(ensemble, rule))
    except Rejected as error:
        note = str(error)
    return build_construction_answer(
        note,
        subject=compute_construction_subject(ensemble, rule),
        input_size=ensemble.input_size,
        seconds=clock.now() - started,
    )


def compute_construction_subject(ensemble: Ensemble, rule: Requirement) -> str:
    """The digest of what such a certification is about."""
    if isinstance(rule, Equality):
        numbers = files.arrays_digest(_equality_arrays(rule, ensemble.input_size))
        about: list[Any] = ["equality", numbers]
    elif isinstance(rule, Built):
        about = ["shape" if isinstance(rule, Shape) else "outputs", rule.digest]
    else:
        assert isinstance(rule.region, Region)
        assert rule.normal_form is not None
        about = ["caps", rule.normal_form.digest, rule.region.record()]
    content = [compute_mixture_digest(ensemble), ensemble.shield_digest, *about]
    return hashlib.sha256(files.json_line(content)).hexdigest()


def build_construction_certificate(
    ensemble: Ensemble, rule: Requirement, title: str = "a mixture"
) -> bytes:
    """The certificate that every member, and the anchor of a shield, keeps the rule."""
    if isinstance(rule, Equality):
        stated = _state_equality(ensemble, rule)
    elif isinstance(rule, OutputRule):
        stated = _state_outputs(ensemble, rule)
    elif not isinstance(rule, Shape):
        stated = _state_caps(ensemble, rule)
    else:
        stated = _state_shape(ensemble, rule)
    claim = {
        **stated.claim,
        "title": title,
        "requirement": rule.name,
        "input_size": ensemble.input_size,
        "output_size": ensemble.output_size,
    }
    return seal_certificate(claim, stated.arrays, ensemble)


def _state_equality(ensemble: Ensemble, equality: Equality) -> Statement:
    forms = _distinct(find_forms(ensemble))
    if not forms:
        raise Rejected("some members do not keep an equality by construction: complete them")
    arrays = _equality_arrays(equality, ensemble.input_size)
    for number, form in enumerate(forms):
        arrays |= {f"form{number}.{name}": array for name, array in form._asdict().items()}
    return Statement({"kind": "equality", "forms": len(forms)}, arrays)


def _equality_arrays(equality: Equality, input_size: int) -> dict[str, NDArray[Any]]:
    offset, slope = equality.affine_bound(input_size)
    return {"matrix": equality.matrix, "offset": offset, "slope": slope}


def _distinct(forms: list[OutputForm]) -> list[OutputForm]:
    """Each once: members of one stack have the same."""
    found: dict[bytes, OutputForm] = {}
    for form in forms:
        found.setdefault(b"".join(_bytes(array) for array in form), form)
    return list(found.values())


def _bytes(array: Array) -> bytes:
    return f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes()


def _state_outputs(ensemble: Ensemble, rule: OutputRule) -> Statement:
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
    return Statement({"kind": "outputs", "forms": len(distinct)}, arrays)


def _state_caps(ensemble: Ensemble, rule: Requirement) -> Statement:
    """The members themselves, whose limits are compared with the rules."""
    rules, region = rule.normal_form, rule.region
    if not keeps_capped(ensemble, rule):
        raise Rejected("some members have no limits that keep the rule on its box")
    assert isinstance(rules, AffineRules)
    assert isinstance(region, Box)
    states = [part.members.state() for part in ensemble.used]
    arrays: Arrays = {name: getattr(rules, name) for name in ("constant", "limit", "tilt", "piece")}
    arrays |= {"lower": region.lower, "upper": region.upper}
    members = [files.member_record(state) for state in states]
    return Statement({"kind": "caps", "members": members}, arrays | files.member_arrays(states))


def _state_shape(ensemble: Ensemble, shape: Shape) -> Statement:
    """The members themselves."""
    if len(ensemble.layout) > 1 or ensemble.shield_digest is not None:
        raise Rejected(
            "a shape cannot be proven for several blocks, or behind a shield", code="shape"
        )
    states = [part.members.state() for part in ensemble.used]
    claim = {
        "kind": "shape",
        "asks": {
            "shape": "monotone" if isinstance(shape, Monotone) else "curvature",
            "features": [[int(j), int(sign)] for j, sign in sorted(shape.features.items())],
            "output": None if shape.output is None else int(shape.output),
            "ordered": bool(shape.ordered),
            "logits": bool(shape.logits),
        },
        "members": [files.member_record(state) for state in states],
    }
    return Statement(claim, files.member_arrays(states))
