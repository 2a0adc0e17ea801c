"""A journal of the violated demand vectors that were found, iteration by iteration.

Separation finds what the mixture violates; attacks while training find what the group in training
does, and those lines say so. The figures on one arc's history are drawn from it. It is written as
the run goes on; a resumed run repeats lines exactly, so repeated lines count once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai import Problem, Settings, runs
from cg4ai.colgen import (
    IterationRecord,
    SeparationResult,
    Separator,
    SeparatorDefaults,
    attack_tolerance,
    default_separator,
    get_cut_tolerance,
)
from cg4ai.members import Mixture
from cg4ai.routing.train.joint import JointPricer
from cg4ai.routing.train.members import RoutingPricer
from cg4ai.rules import Linear, LinearRows, Requirement
from cg4ai.runs import Run

CUTS = "cuts.jsonl"


class CutJournal:
    """Writes `cuts.jsonl` in a run folder; `iteration` is the one going on."""

    def __init__(self, run: Run, settings: Settings) -> None:
        self.path = run.folder / CUTS
        # who searches is known by the tolerance: the loop, pricers, or audits, which are left out
        self.tolerance = get_cut_tolerance(settings)
        self.in_training: set[float] = set()
        checkpoint = run.load_checkpoint()
        self.iteration = 0 if checkpoint is None else checkpoint.iteration + 1
        if self.path.exists():  # a kill may have torn the last line
            runs.write_bytes(self.path, b"".join(self._lines()))

    def listen(self, problem: Problem) -> Problem:
        """The same problem, whose separators also write down what they find."""
        for pricer in problem.pricers:
            if isinstance(pricer, RoutingPricer | JointPricer):
                self.in_training.add(attack_tolerance(pricer.headroom))
        requirements: list[Requirement] = []
        for requirement in problem.requirements:
            if isinstance(requirement, Linear) and requirement.region is not None:
                inner = default_separator(requirement, True)
                requirement = replace(requirement, separator=_ListeningSeparator(inner, self))
            requirements.append(requirement)
        return replace(problem, requirements=tuple(requirements))

    def end_iteration(self, record: IterationRecord) -> None:
        """An iteration has ended; what is found from now on belongs to the next."""
        self.iteration = record.iteration + 1

    def write(self, found: SeparationResult, *, training: bool) -> None:
        if not isinstance(found.rows, LinearRows) or found.rows.origin is None:
            return
        inputs = found.rows.inputs[np.asarray(found.rows.index)]
        records = [
            {
                "iteration": self.iteration,
                "arc": int(arc),
                "utilisation": 1.0 + float(violation),
                "demands": vector.tolist(),
                **({"training": True} if training else {}),
            }
            for arc, violation, vector in zip(
                found.rows.origin[:, 1], found.violations, inputs, strict=True
            )
        ]
        runs.append_lines(self.path, records, durable=False)

    def to_arrays(self) -> dict[str, NDArray[np.float64] | NDArray[np.int64]]:
        """All cuts: iteration (k,), arc (k,), utilisation when found (k,), demands (k, D).

        As `cut_...` those of the mixture, as `met_...` those of groups in training.
        """
        entries = list(self._lines().values())
        arrays: dict[str, NDArray[np.float64] | NDArray[np.int64]] = {}
        for name, training in (("cut", False), ("met", True)):
            own = [entry for entry in entries if entry.get("training", False) == training]
            if own:
                arrays |= {
                    f"{name}_iteration": np.array([entry["iteration"] for entry in own], np.int64),
                    f"{name}_arc": np.array([entry["arc"] for entry in own], np.int64),
                    f"{name}_utilisation": np.array([entry["utilisation"] for entry in own]),
                    f"{name}_demands": np.array([entry["demands"] for entry in own], np.float64),
                }
        return arrays

    def _lines(self) -> dict[bytes, dict[str, Any]]:
        return dict(runs.read_lines(self.path))


def found_overloads(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Overloads of the mixture and of groups in training, in the order of iterations."""
    parts = [name for name in ("cut", "met") if f"{name}_arc" in arrays]
    fields = ("iteration", "arc", "utilisation", "demands")
    if not parts:
        return {name: np.zeros(0) for name in (*fields, "training")}
    found = {name: np.concatenate([arrays[f"{p}_{name}"] for p in parts]) for name in fields}
    counts = [len(arrays[f"{p}_arc"]) for p in parts]
    found["training"] = np.repeat([p == "met" for p in parts], counts)
    over = found["utilisation"] > 1.0  # attacks while training keep near misses, too
    order = np.flatnonzero(over)[np.argsort(found["iteration"][over], kind="stable")]
    return {name: values[order] for name, values in found.items()}


@dataclass(frozen=True)
class _ListeningSeparator(SeparatorDefaults):
    """A separator that shows the journal what was found by it."""

    inner: Separator
    journal: CutJournal

    def find(
        self,
        ensemble: Mixture,
        requirement: Requirement,
        *,
        seed: int,
        limit: int,
        tolerance: float,
    ) -> SeparationResult:
        found = self.inner.find(ensemble, requirement, seed=seed, limit=limit, tolerance=tolerance)
        training = tolerance in self.journal.in_training
        if training or tolerance == self.journal.tolerance:
            self.journal.write(found, training=training)
        return found

    def thorough(self) -> Separator:
        return _ListeningSeparator(self.inner.thorough(), self.journal)

    def inner_parts(self) -> Sequence[Separator]:
        return (self.inner,)
