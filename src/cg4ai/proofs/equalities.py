"""Certificates of equalities that members keep by how they are built, at every input there is."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai import __version__, clock
from cg4ai.checker import Rejected, verdict
from cg4ai.ensemble.claims import mixture_digest
from cg4ai.ensemble.constructed import Form, forms_of
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.proofs.files import NAMES, claim_array, sealed
from cg4ai.proofs.records import Certification, built
from cg4ai.records import Array
from cg4ai.rules.equality import Equality
from cg4ai.runs import files


def certify_equality(ensemble: Ensemble, equality: Equality) -> Certification:
    """Proven if every member, and the anchor of a shield, is completed by it; unknown if not."""
    started = clock.now()
    equality.check(ensemble.input_size, ensemble.output_size)
    note = ""
    try:
        if not forms_of(ensemble):
            raise Rejected("some members keep no equality by how they are built: complete them")
        verdict(equality_bytes(ensemble, equality))
    except Rejected as error:
        note = str(error)
    return built(
        note,
        subject=equality_subject(ensemble, equality),
        input_size=ensemble.input_size,
        seconds=clock.now() - started,
    )


def equality_subject(ensemble: Ensemble, equality: Equality) -> str:
    """The digest of what such a certification is about."""
    numbers = files.arrays_digest(_equality_arrays(equality, ensemble.input_size))
    content = [mixture_digest(ensemble), ensemble.shield_digest, "equality", numbers]
    return hashlib.sha256(files.json_line(content)).hexdigest()


def equality_bytes(ensemble: Ensemble, equality: Equality, title: str = "a mixture") -> bytes:
    """The certificate that every member keeps the equality."""
    forms = _distinct(forms_of(ensemble))
    arrays = _equality_arrays(equality, ensemble.input_size)
    for number, form in enumerate(forms):
        arrays |= {f"form{number}.{name}": array for name, array in form._asdict().items()}
    claim = {
        "kind": "equality",
        "title": title,
        "requirement": equality.name,
        "input_size": ensemble.input_size,
        "output_size": ensemble.output_size,
        "forms": len(forms),
        "made_by": {"cg4ai": __version__},
        "about": {name: ensemble.about[name] for name in NAMES if name in ensemble.about},
    }
    return sealed(arrays | {"claim": claim_array(claim)})


def _equality_arrays(equality: Equality, input_size: int) -> dict[str, NDArray[Any]]:
    offset, slope = equality.affine_bound(input_size)
    return {"matrix": equality.matrix, "offset": offset, "slope": slope}


def _distinct(forms: list[Form]) -> list[Form]:
    """Each once: members of one stack have the same."""
    found: dict[bytes, Form] = {}
    for form in forms:
        found.setdefault(b"".join(_bytes(array) for array in form), form)
    return list(found.values())


def _bytes(array: Array) -> bytes:
    return f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes()
