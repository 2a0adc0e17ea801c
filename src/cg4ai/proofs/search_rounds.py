"""Rounds of a search: open cells dealt into tasks that need nothing of each other, then joined.

How cells are dealt does not depend on how many tasks are worked on at a time, and what tasks found
is joined in their order: the tree is the same for any number of jobs, unless time ends the search.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from cg4ai import clock
from cg4ai.parallel import iterate_in_order
from cg4ai.proofs.bounds.search import Search
from cg4ai.proofs.certifier import Certifier, Counterexample, SearchLimits
from cg4ai.proofs.records import Progress

FIRST_ROUND = 512  # cells per rule in the first round
GROWTH = 8  # each later round has so many times more,
LAST_ROUND = 2**18  # but no more than this, so that cells are dealt anew and progress is told
LEAST_TASK = 2048  # cells that are worth a task of their own
TASKS = 8  # of a rule in one round, at most
TELL_EVERY_S = 0.5  # progress is told no more often


@dataclass(frozen=True, eq=False)
class SearchTask:
    """Some open cells of a rule, to be searched until a limit of this task is reached."""

    rule: int
    search: Search
    cells: int
    stored: int  # bytes by which its tree may grow
    until: float  # a moment of `clock.wall`, which all processes share


@dataclass(frozen=True, eq=False)
class TaskResult:
    """A task's cells as its search left them, and the inputs that it came upon."""

    search: Search
    found: Counterexample | None
    tight: Counterexample | None


def run_search_rounds(
    work: Certifier,
    limited: SearchLimits,
    *,
    progress: Callable[[Progress], None] | None,
    n_jobs: int | None,
) -> None:
    """Rounds over open rules, each with more cells: easy rules are not kept waiting.

    Which rule resists is known early, and a violation anywhere is found early.
    """
    told = _Told(work, progress)
    size, left = FIRST_ROUND, limited.cells
    while left > 0 and clock.now() < limited.until:
        rules = work.find_waiting(limited)
        if not rules:
            return
        tasks = _tasks(work, rules, limited, size=size, left=left)
        left -= _round(work, tasks, limited, told, n_jobs)
        if work.full:
            return
        size = min(GROWTH * size, LAST_ROUND)


def _tasks(
    work: Certifier, rules: list[int], limited: SearchLimits, *, size: int, left: int
) -> list[SearchTask]:
    """The tasks of one round, `size` cells for each rule, `left` at most in all."""
    # batches of a GPU are large: cells stay together there
    count = max(1, min(TASKS, size // LEAST_TASK)) if work.device.type == "cpu" else 1
    room = work.memory_limit // 2 - sum(search.stored_bytes for search in work.searches)
    dealt = [(rule, part) for rule in rules for part in work.searches[rule].deal(count)]
    until = clock.wall() + limited.until - clock.now()
    tasks = []
    for rule, part in dealt:
        cells = min(math.ceil(size / count), left)
        tasks.append(SearchTask(rule, part, cells, room // len(dealt), until))
        left -= cells
    return tasks


def _round(
    work: Certifier, tasks: list[SearchTask], limited: SearchLimits, told: _Told, n_jobs: int | None
) -> int:
    """Work on all tasks and join them, in their order; returns how many cells were bounded.

    The other tasks of a rule that one refuted, and all that are left once the search is over, are
    joined as they were, even where somebody has worked on them already.
    """
    before, joined = sum(search.cells for search in work.searches), 0
    each = partial(search_task, work.copy_empty())
    with closing(iterate_in_order(each, _asked(work, tasks), n_jobs=n_jobs, threads=1)) as answers:
        for task, done in zip(tasks, answers, strict=True):
            _join(work, task, done)
            joined += 1
            told()
            over = work.found and not limited.all_rules
            if over or clock.now() >= limited.until:
                break
    for task in tasks[joined:]:
        work.searches[task.rule].join(task.search)
    return sum(search.cells for search in work.searches) - before


def _asked(work: Certifier, tasks: list[SearchTask]) -> Iterator[SearchTask]:
    """The tasks, with nothing to do where their rule is refuted by the time they are begun."""
    for task in tasks:
        yield replace(task, cells=0) if task.rule in work.found else task


def _join(work: Certifier, task: SearchTask, done: TaskResult) -> None:
    search, rule = work.searches[task.rule], task.rule
    if rule in work.found:
        search.join(task.search)
        return
    search.join(done.search)
    if done.found is not None:
        work.found[rule] = done.found
    if done.tight is not None:
        work.keep_tight(rule, done.tight)


def search_task(work: Certifier, task: SearchTask) -> TaskResult:
    """Search the cells of one task; a copy of them, so that the task itself may be asked again."""
    work, search = work.copy_empty(), copy.deepcopy(task.search)
    until = clock.now() + task.until - clock.wall()
    if task.cells > 0 and clock.now() < until:
        bound, count = work.get_bounder(task.rule)
        size = search.stored_bytes
        while True:  # one step at least: rounds shall come to an end
            step = search.step(
                min(count, task.cells - search.cells), bound, outside=work.find_outside
            )
            work.test_cells(task.rule, step)
            grown = search.stored_bytes - size > task.stored
            if not search.waiting or work.found or grown or clock.now() >= until:
                break
            if search.cells >= task.cells:
                break
    return TaskResult(search, work.found.get(task.rule), work.tight.get(task.rule))


class _Told:
    """Tells how far a search has come, but not too often."""

    def __init__(self, work: Certifier, tell: Callable[[Progress], None] | None) -> None:
        self.work, self.tell, self.last = work, tell, -math.inf

    def __call__(self) -> None:
        now = clock.now()
        if self.tell is not None and now - self.last > TELL_EVERY_S:
            self.tell(self.work.progress())
            self.last = now
