"""How certificates are written: named arrays and a claim in JSON, sealed by their digest."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.runs import files

# what a mixture says of its inputs and outputs, without which they could be taken for others
NAMES = ("features", "outputs", "target", "task", "scores")

Arrays = dict[str, NDArray[Any]]


def claim_array(claim: Mapping[str, Any]) -> NDArray[np.uint8]:
    """JSON as the bytes that a certificate holds."""
    text = json.dumps(files.jsonable(claim), sort_keys=True, allow_nan=False)
    return np.frombuffer(text.encode(), np.uint8)


def sealed(arrays: Arrays) -> bytes:
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
