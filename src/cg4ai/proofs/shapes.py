"""Certificates of shapes that members keep by the signs in their arrays, at every input."""

from __future__ import annotations

import hashlib

from cg4ai import __version__, clock
from cg4ai.checker import Rejected, verdict
from cg4ai.ensemble.claims import mixture_digest
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.proofs.files import NAMES, claim_array, sealed
from cg4ai.proofs.records import Certification, built
from cg4ai.rules.shapes import Monotone, Shape
from cg4ai.runs import files


def certify_shape(ensemble: Ensemble, shape: Shape) -> Certification:
    """Proven if the checker sees every member that is used keep it; unknown if not."""
    started = clock.now()
    shape.check(ensemble.input_size, ensemble.output_size)
    note = ""
    try:
        if len(ensemble.layout) > 1 or ensemble.shield_digest is not None:
            raise Rejected("outputs of several blocks, or behind a shield, show no shape")
        verdict(shape_bytes(ensemble, shape))
    except Rejected as error:
        note = str(error)
    return built(
        note,
        subject=shape_subject(ensemble, shape),
        input_size=ensemble.input_size,
        seconds=clock.now() - started,
    )


def shape_subject(ensemble: Ensemble, shape: Shape) -> str:
    """The digest of what such a certification is about."""
    content = [mixture_digest(ensemble), ensemble.shield_digest, "shape", shape.digest]
    return hashlib.sha256(files.json_line(content)).hexdigest()


def shape_bytes(ensemble: Ensemble, shape: Shape, title: str = "a mixture") -> bytes:
    """The certificate that every member keeps the shape: the members themselves."""
    states = [part.members.state() for part in ensemble.used]
    claim = {
        "kind": "shape",
        "title": title,
        "requirement": shape.name,
        "input_size": ensemble.input_size,
        "output_size": ensemble.output_size,
        "asks": {
            "shape": "monotone" if isinstance(shape, Monotone) else "curvature",
            "features": [[int(j), int(sign)] for j, sign in sorted(shape.features.items())],
            "output": None if shape.output is None else int(shape.output),
            "ordered": bool(shape.ordered),
            "logits": bool(shape.logits),
        },
        "members": [files.member_record(state) for state in states],
        "made_by": {"cg4ai": __version__},
        "about": {name: ensemble.about[name] for name in NAMES if name in ensemble.about},
    }
    return sealed({**files.member_arrays(states), "claim": claim_array(claim)})
