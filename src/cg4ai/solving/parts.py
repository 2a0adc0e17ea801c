"""The parts of a problem through all wrappers: who trains, who searches, and what they remember."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from cg4ai.protocols import Stateful
from cg4ai.records import PartState


def unwrapped(part: object, key: str = "") -> Iterator[tuple[str, object]]:
    """A part and all that it wraps (its `inner`, one or several), each with a name of its own."""
    yield key, part
    inner = getattr(part, "inner", ())
    for number, one in enumerate(inner if isinstance(inner, Sequence) else [inner]):
        yield from unwrapped(one, f"{key}.{number}")


def remembering(parts: Mapping[str, object]) -> dict[str, Stateful]:
    """The parts, within their wrappers, whose state a checkpoint must hold."""
    return {
        key: one
        for name, part in parts.items()
        for key, one in unwrapped(part, name)
        if isinstance(one, Stateful)
    }


def taken(parts: Mapping[str, Stateful]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The JSON values of each part, and all their arrays under names of their own."""
    states = {key: part.state() for key, part in parts.items()}
    values = {key: dict(state.values) for key, state in states.items()}
    arrays = {
        f"part {key} {name}": array
        for key, state in states.items()
        for name, array in state.arrays.items()
    }
    return values, arrays


def given_back(
    parts: Mapping[str, Stateful], values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Restore each part from what `taken` gave."""
    for key, part in parts.items():
        start = f"part {key} "
        own = {
            name.removeprefix(start): array.copy()
            for name, array in arrays.items()
            if name.startswith(start)
        }
        part.restore(PartState(values[key], own))
