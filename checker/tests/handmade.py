"""Certificates and folders written by NumPy alone, as their formats are documented.

The model is a ReLU network with one hidden layer; `predict` is its definition, on its own.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

WEIGHTS: Arrays = {
    "weight_0": np.array([[[1.0, 0.5], [-1.0, 1.0], [0.0, -2.0]]]),
    "bias_0": np.array([[0.0, 0.25, 1.0]]),
    "weight_1": np.array([[[1.0, -0.5, 0.25]]]),
    "bias_1": np.array([[0.125]]),
}
CONFIG = {
    "activation": "relu",
    "groups": [],
    "hidden": [3],
    "input_size": 2,
    "output": "linear",
    "output_size": 1,
    "skip": False,
}
DEPTH = 4


def predict(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, 2) -> (n,)."""
    hidden = np.maximum(points @ WEIGHTS["weight_0"][0].T + WEIGHTS["bias_0"][0], 0.0)
    return hidden @ WEIGHTS["weight_1"][0, 0] + WEIGHTS["bias_1"][0, 0]


def largest() -> float:
    """The largest prediction in the unit box, by a grid that holds its corners."""
    axis = np.linspace(0.0, 1.0, 401)
    return float(predict(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)).max())


def full_tree(depth: int) -> list[int]:
    """Halves both coordinates in turn: preorder, with -1 for leaves."""
    below = [] if depth == 0 else full_tree(depth - 1)
    return [-1] if depth == 0 else [(depth - 1) % 2, *below, *below]


def content(limit: float, *, depth: int = DEPTH) -> tuple[dict[str, Any], Arrays]:
    """The claim `y <= limit` over the unit box, and the arrays beside it."""
    tree = np.array(full_tree(depth), np.int16)
    leaves = int((tree == -1).sum())
    claim = {
        "about": {},
        "blocks": [[0]],
        "input_size": 2,
        "made_by": {"cg4ai": "by hand"},
        "margin": 0.0,
        "output_size": 1,
        "parts": [
            {"arrays": sorted(WEIGHTS), "blocks": [0], "config": CONFIG, "kind": "network"},
        ],
        "region": {"kind": "box", "norm": None},
        "requirement": "cap",
        "rules": [{"name": "y below its limit"}],
        "shield": None,
        "title": "a network",
    }
    none = np.zeros(0, np.int64)
    arrays = {
        "lower": np.zeros(2),
        "upper": np.ones(2),
        "part0.weights": np.ones(1),
        **{f"part0.{name}": value for name, value in WEIGHTS.items()},
        "rule_constant": np.ones((1, 1)),
        **{f"slope_{name}": none for name in ("rule", "output", "input")},
        "slope_value": np.zeros(0),
        "square_rule": none,
        "square_factor": np.zeros((0, 1)),
        "limit": np.array([limit]),
        "tilt": np.zeros((1, 2)),
        "piece": np.zeros(1, np.int64),
        "tree_start": np.array([0, len(tree)]),
        "tree_dimension": tree,
        "leaf_start": np.array([0, leaves]),
        "leaf_bound": np.full(leaves, limit),
        "leaf_use": np.zeros(0),
    }
    return claim, arrays


def sealed(claim: dict[str, Any], arrays: Arrays) -> bytes:
    """The bytes of a certificate file."""
    stream = io.BytesIO()
    raw = np.frombuffer(json.dumps(claim).encode(), np.uint8)
    np.savez(stream, allow_pickle=False, **{"claim": raw, **arrays})
    archive = stream.getvalue()
    return f"cg4ai-certificate 3 sha256 {hashlib.sha256(archive).hexdigest()}\n".encode() + archive


def certificate(limit: float, *, depth: int = DEPTH) -> bytes:
    return sealed(*content(limit, depth=depth))


def write_folder(folder: Path, weights: Arrays = WEIGHTS) -> None:
    """A folder that holds this network as the only member of a mixture."""
    folder.mkdir(exist_ok=True)
    arrays = {f"0.{name}": value for name, value in sorted(weights.items())}
    digest = hashlib.sha256()
    header: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        digest.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        digest.update(array.tobytes())
        offsets = [end, end + array.nbytes]
        header[name] = {"dtype": "F64", "shape": list(array.shape), "data_offsets": offsets}
        end = offsets[1]
    head = json.dumps({"__metadata__": {"sha256": digest.hexdigest()}, **header}).encode()
    body = b"".join(array.tobytes() for array in arrays.values())
    (folder / "members.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + body)
    record = {
        "format": "cg4ai-ensemble",
        "version": 3,
        "arrays": digest.hexdigest(),
        "about": {},
        "layout": [[0]],
        "blocks": [[0]],
        "weights": [[1.0]],
        "members": [{"kind": "network", "config": CONFIG}],
    }
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    seal = hashlib.sha256(text.encode()).hexdigest()
    (folder / "ensemble.json").write_text(json.dumps({"sha256": seal, **record}))
