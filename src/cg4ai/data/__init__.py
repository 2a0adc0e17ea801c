"""Data as users bring them: arrays that are checked, sparse matrices, rows read in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.data.batches import Batches
    from cg4ai.data.sparse import SparseMatrix
    from cg4ai.estimators.frames import predict_frame
    from cg4ai.estimators.pipelines import fit_with_requirements, transform_requirement
    from cg4ai.records import Array, IntArray
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.data.batches": ["Batches"],
            "cg4ai.data.sparse": ["SparseMatrix"],
            "cg4ai.estimators.frames": ["predict_frame"],
            "cg4ai.estimators.pipelines": ["fit_with_requirements", "transform_requirement"],
            "cg4ai.records": ["Array", "IntArray"],
        },
    )

__all__ = [
    "Array",
    "Batches",
    "IntArray",
    "SparseMatrix",
    "fit_with_requirements",
    "predict_frame",
    "transform_requirement",
]
