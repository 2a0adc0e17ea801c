"""What `cg4ai train` can be told: data, target and rules, and how the mixture is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.settings import (
    MOST_THREADS,
    MOST_UNITS,
    CheckedSettings,
    FinalChoice,
    Settings,
    device_setting,
    hidden_setting,
    seed_setting,
    setting,
    time_limit_setting,
)

Task = Literal["classification", "regression"]
Scores = Literal["probability", "logit"]
EffortWord = Literal["fast", "default", "best"]


def sizes_of(text: str) -> tuple[int, ...]:
    """Hidden layer sizes from the text of an option; empty for none."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isdecimal() and len(part) < 20 for part in parts):
        raise InvalidInput(
            f"--hidden must be layer sizes such as 16 or 32,16, got {text!r}", code="type"
        )
    return tuple(int(part) for part in parts)


def levels_of(text: str) -> tuple[float, ...]:
    """Quantiles from the text of an option; empty for none."""
    try:
        return tuple(float(part) for part in text.split(",")) if text.strip() else ()
    except ValueError as error:
        raise InvalidInput(
            f"--quantiles must be numbers such as 0.1,0.5,0.9, got {text!r}", code="type"
        ) from error


def names_of(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def loop_fault(given: Any) -> str:
    """What is wrong with further settings of the loop: their names; values are checked there."""
    if not isinstance(given, Mapping):
        return f"loop must hold settings by name, got {given!r}"
    known = [one.name for one in fields(Settings)]
    unknown = [name for name in given if name not in known]
    return "; ".join(f"unknown setting {name!r}{did_you_mean(name, known)}" for name in unknown)


@dataclass(frozen=True, kw_only=True)
class TrainSettings(CheckedSettings):
    """What to train on and how; `loop` holds further settings of `cg4ai.Settings` by name."""

    data: Path | None = setting(None, "CSV file with a header.", argument=True, metavar="DATA.csv")
    target: str = setting("", "Column to predict.", metavar="COLUMN")
    rules: Path | None = setting(None, "Rules to keep; see docs/rules.md.", metavar="RULES.json")
    task: Task | None = setting(
        None, "classification or regression; guessed if left out.", metavar="TASK"
    )
    ignore: tuple[str, ...] = setting(
        (), "Column that is no feature (repeatable).", metavar="COLUMN"
    )
    members: tuple[str, ...] = setting(
        ("network",),
        "network, affine, relu, stump, tree, forest or boosting; or several: a,b.",
        read=names_of,
    )
    scores: Scores = setting("probability", "Classification scores: probability or logit.")
    quantiles: tuple[float, ...] = setting(
        (), "Quantiles of the target to predict, e.g. 0.1,0.5,0.9.", read=levels_of
    )
    hidden: tuple[int, ...] = setting(
        (16,),
        "Hidden layer sizes of networks, e.g. 32,16.",
        least=1,
        most=MOST_UNITS,
        read=sizes_of,
    )
    effort: EffortWord = setting("default", "How much to train: fast, default or best.")
    restarts: int = setting(4, "Networks trained per iteration.", least=1)
    steps: int = setting(300, "Training steps per network.", least=1)
    column_limit: int = setting(100, "Stop at this many members.", least=1)
    iteration_limit: int = setting(15, "Stop after this many iterations.", least=1)
    time_limit_s: float = time_limit_setting()
    final_weights: FinalChoice = setting("loss", "loss, uniform or vertex.")
    single_model: bool = setting(
        False, "One member (a small tree, say) in place of a mixture, with its gap to the mixture."
    )
    seed: int = seed_setting()
    device: str = device_setting()
    threads: int = setting(
        1, "CPU threads; more than 1 pays off for large data only.", least=1, most=MOST_THREADS
    )
    activation: str = hidden_setting("auto")
    objective: str = hidden_setting("mixture")
    learning_rate: float = hidden_setting(0.02)
    batch_size: int | None = hidden_setting(None, least=1)
    output_limit: float | None = hidden_setting(20.0)
    loop: Mapping[str, Any] | None = hidden_setting(None, check=loop_fault, names=Settings)

    def inconsistencies(self) -> list[str]:
        missing = [
            name
            for name, value in (
                ("DATA.csv", self.data),
                ("--target", self.target),
                ("--rules", self.rules),
            )
            if not value
        ]
        if missing:
            return [f"missing: {', '.join(missing)}; or continue a run with --resume --out DIR"]
        return []
