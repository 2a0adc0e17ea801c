"""Turn what users bring (lists, NumPy, DataFrames, torch, sparse) into checked plain arrays.

Every function copies, so that later changes to the user's data do not reach a requirement.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray


def is_traced() -> bool:
    """Whether torch records what is computed as one graph, for any number of inputs."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[no-untyped-call]
    return torch.compiler.is_compiling() or tracing


def as_numbers(value: Any, what: str, *, missing: bool = False) -> Array:
    """A finite float64 copy of `value` with whatever shape it has; NaN only where some may miss."""
    if isinstance(value, Tensor):
        if value.device.type == "meta":
            raise InvalidInput(
                f"{what} must hold numbers, got a tensor on the device 'meta'", code="type"
            )
        # NumPy knows no bfloat16
        value = (value.double() if value.is_floating_point() else value).detach().cpu().numpy()
    elif callable(getattr(value, "toarray", None)):  # scipy.sparse
        value = value.toarray()
    try:
        plain = np.asarray(value)
    except ValueError as error:
        raise InvalidInput(
            f"{what} must be a rectangular array of numbers, got rows of unequal length: {error}",
            code="shape",
        ) from error
    if plain.dtype == object:
        plain = _from_objects(plain, what)
    if plain.dtype.kind not in "fiub":
        raise InvalidInput(
            f"{what} must hold real numbers, got dtype {plain.dtype}; {_remedy(plain.dtype.kind)}",
            code="type",
        )
    result = np.array(plain, dtype=np.float64, order="C")
    wrong = ~np.isfinite(result) & ~(missing & np.isnan(result))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InvalidInput(
            f"{what} must be finite, got {result[where]} at position {where}; "
            "remove or impute such entries first",
            code="not-finite",
        )
    if missing:
        result[np.isnan(result)] = np.nan  # one of many bit patterns: inputs are known by theirs
    return result


def _from_objects(plain: NDArray[Any], what: str) -> Array:
    # mixed DataFrame columns (integers beside booleans) arrive as objects; text stays refused
    for kind, types in (("U", (str, bytes)), ("M", (np.datetime64, np.timedelta64, date))):
        found = {type(entry).__name__ for entry in plain.flat if isinstance(entry, types)}
        if found:
            raise InvalidInput(
                f"{what} must hold real numbers, got {', '.join(sorted(found))} entries; "
                f"{_remedy(kind)}",
                code="type",
            )
    try:
        return plain.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{what} must hold real numbers: {error}", code="type") from error


def _remedy(kind: str) -> str:
    """What to do with values of a NumPy kind that are no real numbers."""
    if kind in "mM":
        return "turn dates into numbers first, such as days since a first date"
    if kind == "c":
        return "give real and imaginary parts as inputs of their own"
    return "encode text and categories as numbers first"


def as_matrix(value: Any, what: str, *, missing: bool = False) -> Array:
    """(m, d), neither side empty; NaN only where some may be `missing`."""
    result = as_numbers(value, what, missing=missing)
    if result.ndim == 1:
        raise InvalidInput(
            f"{what} must have shape (m, d), got {result.shape}; for one input use "
            "array.reshape(1, -1)",
            code="shape",
        )
    if result.ndim == 0:
        raise InvalidInput(f"{what} must have shape (m, d), got a single number", code="shape")
    if result.ndim != 2:
        raise InvalidInput(
            f"{what} must have shape (m, d), got {result.shape}; flatten each input, "
            "array.reshape(len(array), -1), and begin a module of your own with nn.Unflatten",
            code="shape",
        )
    if result.size == 0:
        raise InvalidInput(
            f"{what} is empty, shape {result.shape}; give at least one input", code="empty"
        )
    return result


def as_table(value: Any, what: str) -> NDArray[Any]:
    """(m, d) of numbers, NaN where some are missing; of a DataFrame with text cells, as objects."""
    if not hasattr(value, "columns") or not callable(getattr(value, "to_numpy", None)):
        return as_matrix(value, what, missing=True)
    # what misses among text is not NaN to those who encode it
    plain = all(getattr(kind, "kind", "O") in "fiub" for kind in getattr(value, "dtypes", ()))
    try:
        return as_matrix(value, what, missing=plain)
    except InvalidInput:
        cells = np.array(value.to_numpy(dtype=object))
        if cells.size == 0:
            raise
        return cells


def as_vector(value: Any, what: str, length: int | None = None) -> Array:
    """(length,); a single number is repeated. Without `length`, any non-empty vector."""
    result = as_numbers(value, what)
    if result.ndim == 0:
        return np.full(1 if length is None else length, float(result))
    if result.ndim != 1 or len(result) == 0 or (length is not None and len(result) != length):
        expected = "a non-empty vector" if length is None else f"one number or {length} of them"
        raise InvalidInput(f"{what} must be {expected}, got shape {result.shape}", code="shape")
    return result


def as_rule_matrix(value: Any, what: str, *, inputs: int, rules: int) -> Array:
    """(inputs, rules), from one number, (rules,), (inputs, 1) or (inputs, rules)."""
    result = as_numbers(value, what)
    if result.shape not in ((), (rules,), (1, rules), (inputs, 1), (inputs, rules)):
        raise InvalidInput(
            f"{what} for {rules} rules at {inputs} inputs must be one number, {(rules,)}, "
            f"{(inputs, 1)} or {(inputs, rules)}, got shape {result.shape}",
            code="shape",
        )
    return np.array(np.broadcast_to(result, (inputs, rules)))


def as_labels(value: Any, what: str, length: int) -> IntArray:
    """(length,) integers >= 0; whole floats and booleans are accepted, a single one repeated."""
    result = as_vector(value, what, length)
    if not np.array_equal(result, np.round(result)):
        first = result[result != np.round(result)][0]
        raise InvalidInput(f"{what} must be whole numbers 0, 1, ..., got {first}", code="type")
    if result.min() < 0:
        raise InvalidInput(
            f"{what} must be class numbers 0, 1, ..., got {int(result.min())}", code="range"
        )
    return result.astype(np.int64)


def check_same_columns(given: Sequence[str], known: Sequence[str], what: str, whose: str) -> None:
    """Refuse columns of other names, or in another order, than those known; no names say nothing.

    `what` has the columns given, `whose` are those known.
    """
    if given and known and list(given) != list(known):
        raise InvalidInput(
            f"{what} has the columns {list(given)}, but {whose} has {list(known)}; give the same "
            "columns in the same order",
            code="conflict",
        )


def group_same_inputs(inputs: Array) -> tuple[IntArray, IntArray]:
    """(n, d) -> the first of each distinct input, in order, and (n,) which of them each is."""
    plain = np.ascontiguousarray(inputs + 0.0)  # no -0.0
    keys = plain.view(np.dtype((np.void, plain.itemsize * plain.shape[1]))).ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[which.ravel()]


def is_among(inputs: Array, listed: Array) -> NDArray[np.bool_]:
    """(n, d), (m, d) -> (n,): which inputs are listed."""
    _, which = group_same_inputs(np.concatenate([listed, inputs]))
    return np.asarray(np.isin(which[len(listed) :], which[: len(listed)]))
