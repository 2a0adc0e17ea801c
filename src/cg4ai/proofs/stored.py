"""A certification as named arrays and back, for checkpoints and for proofs to be continued."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.proofs.records import Certification, OpenCells, RuleProof, Status

STATUSES: tuple[Status, ...] = ("proven", "refuted", "unknown")

Arrays = dict[str, NDArray[Any]]


def tree_arrays(certification: Certification) -> Arrays:
    """The trees of cells of all rules, one after the other."""
    trees = [proof.dimensions.astype(np.int16) for proof in certification.rules]
    bounds = [proof.leaf_bounds.astype(np.float64) for proof in certification.rules]
    return {
        "tree_start": np.cumsum([0, *map(len, trees)], dtype=np.int64),
        "tree_dimension": np.concatenate(trees),
        "leaf_start": np.cumsum([0, *map(len, bounds)], dtype=np.int64),
        "leaf_bound": np.concatenate(bounds),
    }


def certification_arrays(certification: Certification) -> Arrays:
    """What is known of every rule, and of which mixture; not the counterexamples."""
    proofs = certification.rules
    return {
        **tree_arrays(certification),
        "rule": np.array([proof.rule for proof in proofs]),
        "status": np.array([STATUSES.index(proof.status) for proof in proofs]),
        "limit": np.array([proof.limit for proof in proofs]),
        "bound": np.array([proof.bound for proof in proofs]),
        "cells": np.array([proof.cells for proof in proofs]),
        "total": np.array([certification.cells, certification.seconds]),
        "subject": np.frombuffer(bytes.fromhex(certification.subject), np.uint8),
    }


def certification_of(arrays: Mapping[str, NDArray[Any]], *, status: Status) -> Certification:
    """The certification that `certification_arrays` took apart; its trees say what is open."""
    trees = np.split(arrays["tree_dimension"], arrays["tree_start"][1:-1])
    bounds = np.split(arrays["leaf_bound"], arrays["leaf_start"][1:-1])
    proofs = tuple(
        RuleProof(
            rule=int(arrays["rule"][k]),
            status=STATUSES[int(arrays["status"][k])],
            limit=float(arrays["limit"][k]),
            bound=float(arrays["bound"][k]),
            dimensions=trees[k],
            leaf_bounds=bounds[k],
            cells=int(arrays["cells"][k]),
        )
        for k in range(len(arrays["rule"]))
    )
    cells, seconds = arrays["total"].tolist()
    nothing = OpenCells(np.empty(0, np.int64), np.empty((0, 0)), np.empty((0, 0)), np.empty(0))
    return Certification(
        status,
        proofs,
        None,
        None,
        None,
        nothing,
        int(cells),
        seconds,
        "",
        subject=arrays["subject"].tobytes().hex(),
    )
