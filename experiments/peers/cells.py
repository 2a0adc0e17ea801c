"""Cells of a study, each one method on one task with one seed, measured side by side."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cg4ai.apps import iterate_as_completed
from experiments.peers.outcomes import Outcome

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Cell:
    """What is measured in a process of its own; `work` is a function of a module, or a partial."""

    task: str
    method: str
    seed: int
    work: Callable[[], Outcome]

    @property
    def key(self) -> tuple[str, str, int]:
        return self.task, self.method, self.seed


def measured(cells: Sequence[Cell], jobs: int) -> Iterator[Outcome]:
    """The outcomes of all cells as they come, `jobs` at a time, one thread each."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    yield from iterate_as_completed(_quietly, cells, n_jobs=jobs, threads=1)


def _quietly(cell: Cell) -> Outcome:
    """Warnings of fits that end early say nothing here: scores do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cell.work()
