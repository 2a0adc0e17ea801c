"""How much work a fit does: one word gives the defaults of what is not set by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from cg4ai.errors import InvalidInput, did_you_mean

PER_ROOT: Final = 15.0  # steps on batches for each root of a row: they grow slower than the data

SHRINKAGES: Final = (1.0, 0.1, 0.01, 0.001)  # ridge per row, on standardised inputs and outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What one word for effort stands for.

    boosted_alone: "auto" is one boosted model, without networks, wherever one can keep the rules
        and there are rows enough for full trees.
    boosted_first: the boosted model of "auto" is trained before networks, not after them.
    many_rows: with more, networks are trained on batches of `batch_size`, and deeper ones; from
        `fewest_steps` to `most_steps`. With fewer so many `restarts` are trained at once.
    shrinkages: of the linear models that networks and boosted models are mixed with.
    modules, passes: of the user's own modules: how many, and how often they see each row.
    training_rounds, estimate_restarts: as in `cg4ai.Settings`.
    """

    boosted_alone: bool
    boosted_first: bool
    many_rows: int
    batch_size: int
    fewest_steps: int
    most_steps: int
    restarts: int
    shrinkages: tuple[float, ...]
    modules: int
    passes: int
    training_rounds: int
    estimate_restarts: int

    def steps_on_batches(self, rows: int) -> int:
        """How many steps of networks so many rows are worth."""
        return max(self.fewest_steps, min(self.most_steps, round(PER_ROOT * math.sqrt(rows))))


EFFORTS: Final = {
    "fast": Effort(
        boosted_alone=True,
        boosted_first=True,
        many_rows=3000,
        batch_size=256,
        fewest_steps=600,
        most_steps=2000,
        restarts=1,
        shrinkages=(0.01,),
        modules=1,
        passes=20,
        training_rounds=1,
        estimate_restarts=0,
    ),
    "default": Effort(
        boosted_alone=False,
        boosted_first=True,
        many_rows=3000,
        batch_size=256,
        fewest_steps=1200,
        most_steps=6000,
        restarts=2,
        shrinkages=SHRINKAGES,
        modules=2,
        passes=60,
        training_rounds=2,
        estimate_restarts=0,
    ),
    "best": Effort(
        boosted_alone=False,
        boosted_first=False,
        many_rows=6000,
        batch_size=512,
        fewest_steps=6000,
        most_steps=6000,
        restarts=4,
        shrinkages=SHRINKAGES,
        modules=2,
        passes=60,
        training_rounds=0,
        estimate_restarts=8,
    ),
}


def find_effort(word: object) -> Effort:
    """What the word stands for; others are refused."""
    found = EFFORTS.get(word) if isinstance(word, str) else None
    if found is None:
        hint = did_you_mean(str(word), EFFORTS)
        raise InvalidInput(
            f"effort must be one of {', '.join(EFFORTS)}, got {word!r}{hint}", code="unknown-name"
        )
    return found
