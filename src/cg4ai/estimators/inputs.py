"""What the estimators read: X and y as users bring them, checked, whole or batch by batch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from cg4ai.data.batches import as_batches
from cg4ai.errors import InvalidInput
from cg4ai.estimators.batches import FitData, check_kinds, scan_data
from cg4ai.estimators.frames import (
    ENCODE,
    PREDICTION,
    check_columns,
    check_target,
    find_misalignment,
    names_of,
)
from cg4ai.estimators.kinds import kinds_of, take_missing
from cg4ai.estimators.parameters import Parameters
from cg4ai.records import Array


@dataclass(eq=False, repr=False, kw_only=True)
class ReadingEstimator(Parameters):
    """Parameters, and how data are read under them; not public."""

    def _given(
        self, X: Any, y: Any, sample_weight: Any, *, labelled: bool = False, **checks: Any
    ) -> FitData:
        """The rows to fit, with their range remembered; of batches those kept in memory."""
        batches = as_batches(X)
        self._target_name = PREDICTION if len(names_of(y)) != 1 else names_of(y)[0]
        self._misaligned = find_misalignment(X, y)
        if batches is None:
            y = check_target(y)
            if checks.get("y_numeric"):
                check_numbers(y)
            inputs, targets = self._validated(X, y, **checks)
            inputs = make_dense(inputs)
            self.input_range_ = _range(inputs)
            return FitData(inputs, targets, row_weights(sample_weight, inputs))
        if y is not None or sample_weight is not None:
            raise InvalidInput(
                "Batches hold targets and weights themselves: write fit(batches)", code="conflict"
            )
        check_kinds(kinds_of(self.members))

        def check(inputs: Any, targets: Any, first: bool) -> Any:
            found = self._validated(inputs, targets, reset=first, **checks)
            if labelled:  # numbers would be as many labels as rows
                check_classification_targets(found[1])
            return found

        looked = scan_data(batches, check, seed=self.draw_seed(), labelled=labelled)
        if self.batch_size is None and not looked.complete:
            raise InvalidInput(
                f"batch_size=None trains on all rows at once, and of {looked.count} rows "
                f"{batches.keep} are kept in memory; give a number, or leave it to 'auto'",
                code="memory",
            )
        self.input_range_ = np.stack([looked.low, looked.high])
        return FitData.from_scan(looked)

    def _parts(self, X: Any) -> Iterator[Array]:
        """The rows of X, checked, as many at a time as are predicted at once."""
        check_is_fitted(self, "ensemble_")
        for part in file_parts(X):
            yield from dense_parts(self._validated(part, reset=False))

    def _validated(self, X: Any, *y: Any, **checks: Any) -> Any:
        """X, or X and y, as scikit-learn checks them; NaN where all members take it."""
        finite: Any = "allow-nan" if take_missing(self.members) else True
        X = check_columns(X)
        try:
            return validate_data(
                self,
                X,
                *y,
                dtype=np.float64,
                accept_sparse="csr",
                ensure_all_finite=finite,
                **checks,
            )
        except ValueError as error:
            if "could not convert string to float" in str(error):
                raise InvalidInput(
                    f"X holds text ({error}), and members take numbers: {ENCODE}", code="type"
                ) from error
            if "Input X contains NaN" not in str(error):
                raise
            raise InvalidInput(
                f"Input X contains NaN, and members={self.members!r:.80} take no missing values; "
                'use members="boosting" (or "tree", "forest"), or put an imputer, such as '
                "sklearn.impute.SimpleImputer, before this step in a pipeline",
                code="missing-values",
            ) from error

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = take_missing(self.members)
        return tags


def check_numbers(targets: Any) -> None:
    """Refuse text in y where numbers are learnt; text that states numbers is taken."""
    try:
        np.asarray(targets, np.float64)
    except (TypeError, ValueError) as error:
        each = np.asarray(targets, object).ravel()
        text = next((str(one) for one in each if isinstance(one, str)), None)
        if text is not None:
            raise InvalidInput(
                f"y holds text, such as {text!r:.40}, and a regressor learns numbers: use "
                "ConstrainedClassifier for labels, or turn y into numbers",
                code="type",
            ) from error


def _range(inputs: Array) -> Array:
    """(2, d): the least and largest of each feature, where it is not missing."""
    empty = np.isnan(inputs).all(0)
    known = np.where(empty, 0.0, inputs)
    return np.stack([np.nanmin(known, 0), np.nanmax(known, 0)])


def row_weights(sample_weight: Any, inputs: Array) -> Array:
    """(n,) weights of the rows, ones by default."""
    if sample_weight is None:
        return np.ones(len(inputs))
    weights: Array = _check_sample_weight(sample_weight, inputs, dtype=np.float64)
    if (weights < 0).any() or not weights.any():
        raise InvalidInput(
            f"sample_weight must be numbers >= 0 that are not all 0, got {weights.min()} to "
            f"{weights.max()}",
            code="range",
        )
    return weights


ROWS = 16_384  # predicted at once
COPIES = 3  # of the data that training holds: rows to train on, merged and as they came


def make_dense(inputs: Any) -> Array:
    """(n, d) as an array; refused where a few copies of it would not fit into free memory."""
    if not issparse(inputs):
        return np.asarray(inputs)
    need, free = COPIES * 8.0 * inputs.shape[0] * inputs.shape[1], free_bytes()
    if need > free:
        raise InvalidInput(
            f"sparse X {inputs.shape} needs {need / 2**30:.1f} GiB as a dense array with its "
            f"copies, and {free / 2**30:.1f} GiB are free; take fewer features first, for instance "
            "by TruncatedSVD or SelectKBest in a pipeline",
            code="memory",
        )
    return np.asarray(inputs.toarray())


def dense_parts(inputs: Any) -> Iterator[Array]:
    """The rows (n, d) as arrays, some at a time where they are sparse."""
    if not issparse(inputs):
        yield np.asarray(inputs)
        return
    for start in range(0, inputs.shape[0], ROWS):
        yield np.asarray(inputs[start : start + ROWS].toarray())


def file_parts(inputs: Any) -> Iterator[Any]:
    """The rows as they are; of an array that lies in a file, some at a time."""
    if not isinstance(inputs, np.memmap) or inputs.ndim != 2:
        yield inputs
        return
    for start in range(0, len(inputs), ROWS):
        yield inputs[start : start + ROWS]


def free_bytes() -> float:
    """Free memory, where the system tells; else infinite."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return float("inf")
