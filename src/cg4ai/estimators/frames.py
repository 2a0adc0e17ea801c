"""DataFrames in and out: what columns and targets may hold, predictions with index and names."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from cg4ai.errors import InvalidInput
from cg4ai.extras import import_optional

SHOWN = 5  # columns that an error names
PREDICTION = "prediction"  # what a target without a name is called
ENCODE = (
    "put a ColumnTransformer, such as one with a OneHotEncoder, before this step in a pipeline; "
    "cg4ai.data.fit_with_requirements passes rules through it"
)
WAYS_OUT = {
    "text": ENCODE,
    "categories": ENCODE,
    "dates": "turn dates into numbers, such as days since a first date",
    "complex numbers": "give real and imaginary parts as columns of their own",
    "other things": "turn them into numbers",
}


def is_frame(data: Any) -> bool:
    """Whether it is a DataFrame of pandas."""
    return hasattr(data, "columns") and hasattr(data, "iloc") and hasattr(data, "dtypes")


def check_columns(data: Any) -> Any:
    """Inputs whose columns hold numbers; what misses among objects becomes NaN.

    Columns of text, categories and dates are refused by name, and so is a name that stands twice.
    """
    if not is_frame(data):
        if getattr(getattr(data, "dtype", None), "kind", "") in ("m", "M"):
            raise InvalidInput(
                f"X holds dates, and members take numbers: {WAYS_OUT['dates']}", code="type"
            )
        return data
    twice = [str(name) for name, count in Counter(data.columns).items() if count > 1]
    if twice:
        raise InvalidInput(
            f"X has the column {twice[0]!r} more than once; give each its own name",
            code="duplicate",
        )
    kinds = {str(name): _kind(data.iloc[:, k]) for k, name in enumerate(data.columns)}
    wrong = {name: kind for name, kind in kinds.items() if kind not in ("numbers", "objects")}
    if wrong:
        named = ", ".join(f"{name!r} ({kind})" for name, kind in list(wrong.items())[:SHOWN])
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        ways = "; ".join(dict.fromkeys(WAYS_OUT[kind] for kind in wrong.values()))
        raise InvalidInput(
            f"X has columns that hold no numbers: {named}{more}; {ways}", code="type"
        )
    if "objects" not in kinds.values():
        return data
    return data.where(data.notna(), np.nan)  # pd.NA is no number, None would become one


def _kind(column: Any) -> str:
    """What a column holds, in the words of `WAYS_OUT`, "numbers", or "objects" that are numbers."""
    dtype = column.dtype
    if getattr(dtype, "name", "") == "category":
        numeric = getattr(dtype.categories.dtype, "kind", "O") in "fiub"
        return "numbers" if numeric else "categories"
    kind = getattr(dtype, "kind", "O")
    if kind in "fiub":
        return "numbers"
    if kind in "mM":
        return "dates"
    if kind == "c":
        return "complex numbers"
    known = column[column.notna()]
    if str(dtype).startswith(("str", "large_string")):
        return "text"
    if str(dtype).startswith(("period", "interval")):
        return "dates" if str(dtype).startswith("period") else "other things"
    if any(isinstance(value, str | bytes) for value in known):
        return "text"
    if any(isinstance(value, date | np.datetime64 | np.timedelta64) for value in known):
        return "dates"
    return "objects"


def check_target(target: Any) -> Any:
    """y without missing values; of pandas' own types as the NumPy type that holds the same."""
    kind = getattr(getattr(target, "dtype", None), "kind", "")
    if kind in ("m", "M"):
        raise InvalidInput(f"y holds dates: {WAYS_OUT['dates']}", code="type")
    if not hasattr(target, "isna") or not hasattr(target, "iloc"):
        return target
    missing = np.asarray(target.isna()).reshape(len(target), -1).any(axis=1)
    if missing.any():
        raise InvalidInput(
            f"y has {int(missing.sum())} missing values, the first in row {int(missing.argmax())}; "
            "leave such rows out",
            code="missing-values",
        )
    plain = getattr(getattr(target, "dtype", None), "numpy_dtype", None)
    return target if getattr(plain, "kind", "O") not in "fiub" else target.to_numpy(dtype=plain)


def names_of(target: Any) -> tuple[str, ...]:
    """The names of the columns of y, or that of y itself; empty where it has none."""
    if hasattr(target, "columns"):
        return tuple(map(str, target.columns))
    name = getattr(target, "name", None)
    return (name,) if isinstance(name, str) else ()


def find_misalignment(data: Any, target: Any) -> str:
    """A caution where X and y have the same index in another order, for rows go by position."""
    indices: list[Any] = [getattr(one, "index", None) for one in (data, target)]
    one, other = indices
    if not all(hasattr(index, "equals") for index in indices) or one.equals(other):
        return ""
    try:
        same = one.sort_values().equals(other.sort_values())
    except TypeError:  # labels that cannot be ordered
        return ""
    if not same:
        return ""
    return (
        "X and y have the same index in another order, and rows are taken by their position: if "
        "labels should meet, use y.loc[X.index]"
    )


def predict_frame(model: Any, X: Any, *, explain: bool = False) -> Any:
    """Predictions as a DataFrame with the index of X and columns with names.

    `model` is a `ConstrainedClassifier` or `ConstrainedRegressor`, or a pipeline that ends with
    one. Of classes there is the one predicted, under the name of y, and the probability of each;
    of numbers each output. `explain` adds how strongly each prediction is covered, for every rule,
    how far a shield moved it, and whether it lies outside the region of a rule.
    """
    frame = import_optional("pandas").DataFrame
    inner = X
    if isinstance(model, Pipeline):
        model, earlier = model[-1], model[:-1]
        inner = earlier.transform(X) if len(earlier) else X
    if not hasattr(model, "_named_predictions"):
        raise InvalidInput(
            "predict_frame takes a ConstrainedClassifier or ConstrainedRegressor, or a pipeline "
            f"that ends with one, got {type(model).__name__}",
            code="type",
        )
    # an explanation marks what lies outside: who reads it needs no warning
    columns = model._named_predictions(inner, "ignore" if explain else "warn")
    if explain:
        columns |= model._explanation(inner).columns
    index = X.index if hasattr(X, "index") and not callable(X.index) else None
    return frame(columns, index=index)
