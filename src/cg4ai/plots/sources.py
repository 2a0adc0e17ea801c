"""What figures are drawn from, wherever users have it: results, estimators, ensembles, folders.

A folder is only read; nothing is trained or predicted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from cg4ai.errors import InvalidInput
from cg4ai.members.wrappers import WrappedMembers
from cg4ai.protocols import Members
from cg4ai.runs import files
from cg4ai.runs.folder import Run

Record = Mapping[str, Any]
# in the order in which they are spent
STEPS = {
    "preparing_s": "preparing",
    "pricing_s": "training",
    "separation_s": "searching",
    "master_s": "master",
    "other_s": "audits, rest",
    "evaluation_s": "evaluation",
}


@dataclass(frozen=True)
class WeightedMember:
    """One member of a mixture: what it is (`network`, `shielded tree`), its block and weight."""

    kind: str
    block: int
    weight: float


def history_of(source: Any) -> list[Record]:
    """The records of all iterations: of a result, a fitted estimator, a run folder, or as given."""
    if isinstance(source, str | Path):
        return [*Run.open(source, read_only=True).history()]
    source = getattr(_result_of(source), "history", source)
    if not isinstance(source, Sequence) or not all(map(_is_record, source)):
        raise InvalidInput(
            "a history is that of a result, a fitted estimator, a run folder or a list of records, "
            f"got {type(source).__name__}",
            code="type",
        )
    return [one if isinstance(one, Mapping) else asdict(one) for one in source]


def seconds_of(source: Any) -> dict[str, float]:
    """Seconds by step: of a result, a fitted estimator, a run folder or a summary."""
    if isinstance(source, str | Path):
        source = Run.open(source, read_only=True).summary() or {}
    if isinstance(source, Mapping):
        return {name: float(source[name]) for name in STEPS if source.get(name) is not None}
    result = _result_of(source)
    if not hasattr(result, "seconds_by_step"):
        raise InvalidInput(
            "seconds are those of a result, a fitted estimator, a run folder or a summary, got "
            f"{type(source).__name__}",
            code="type",
        )
    return dict(result.seconds_by_step())


def weights_of(source: Any) -> list[WeightedMember]:
    """All members with weight: of an ensemble, a result, a fitted estimator or a folder."""
    if isinstance(source, str | Path):
        return recorded_weights(files.read_json(Path(source) / "ensemble.json"))
    ensemble = getattr(_result_of(source), "ensemble", source)
    if not hasattr(ensemble, "used"):
        raise InvalidInput(
            "weights are those of an ensemble, a result, a fitted estimator or a folder, got "
            f"{type(source).__name__}",
            code="type",
        )
    return [
        WeightedMember(_kind(part.members), int(block), float(weight))
        for part in ensemble.used
        for block, weight in zip(part.blocks, part.weights, strict=True)
    ]


def recorded_weights(record: Record) -> list[WeightedMember]:
    """The same from what `ensemble.json` holds."""
    stacks = zip(record["members"], record["blocks"], record["weights"], strict=True)
    return [
        WeightedMember(recorded_kind(members), int(block), float(weight))
        for members, blocks, weights in stacks
        for block, weight in zip(blocks, weights, strict=True)
        if weight > 0
    ]


def recorded_kind(members: Record) -> str:
    """What a stack of members is in words, with what is put around it first."""
    inner = members.get("config", {}).get("inner")
    kind = _in_words(str(members["kind"]))
    return f"{kind} {recorded_kind(inner)}" if isinstance(inner, Mapping) else kind


def _kind(members: Members) -> str:
    kind = _in_words(members.kind)
    return f"{kind} {_kind(members.inner)}" if isinstance(members, WrappedMembers) else kind


def _in_words(kind: str) -> str:
    return {"feedback": "network in stages", "side by side": "networks side by side"}.get(
        kind, kind
    )


def _result_of(source: Any) -> Any:
    """The result of a fitted estimator; anything else is what it is."""
    return getattr(source, "result_", source)


def _is_record(one: Any) -> bool:
    return isinstance(one, Mapping) or (is_dataclass(one) and not isinstance(one, type))
