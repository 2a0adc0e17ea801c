"""Fan-out: independent work over cores or a cluster, by joblib and whatever backend it has.

Whoever has several things to do that need nothing of each other (runs, failures, seeds, parts of a
proof, models to fit) gives them here. Every item brings its own seed (`cg4ai.seeds.derive_seed`)
and is cut the same way whatever `n_jobs` is, so that answers do not depend on the number of jobs,
nor on whether loky (joblib's default), dask or ray runs them: that is chosen outside, with
`joblib.parallel_config`. On a GPU threads of one process have streams of their own
(`use_own_stream`); there sums may differ in their last bits.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from numbers import Integral
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from cg4ai.errors import InvalidInput

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")
Answer = TypeVar("Answer")
OF_THREAD = threading.local()
As = Literal["list", "generator", "generator_unordered"]


def check_jobs(n_jobs: object, called: str = "n_jobs") -> int | None:
    """`n_jobs` as joblib takes it: None is 1 or what `parallel_config` says, -1 all cores."""
    if n_jobs is None:
        return None
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise InvalidInput(
            f"{called} must be None or a whole number but 0, got {n_jobs!r}: 2 for two jobs at a "
            "time, -1 for as many as there are cores",
            code="range",
        )
    return int(n_jobs)


def count_jobs(n_jobs: int | None) -> int:
    """How many items are worked on at a time where this is asked: 1 within a worker."""
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))


@contextmanager
def use_jobs(n_jobs: int | None) -> Iterator[None]:
    """So many jobs for all in this block that has no number of its own; None changes nothing."""
    if n_jobs is None:
        yield
        return
    from joblib import parallel_config

    with parallel_config(n_jobs=n_jobs):
        yield


def fan_out(
    work: Callable[[Item], Answer],
    items: Iterable[Item],
    *,
    n_jobs: int | None = None,
    threads: int | None = None,
    names: Sequence[str] | None = None,
) -> list[Answer]:
    """The answers to all items, in their order.

    `threads` is how many each item computes with, in this process, too: results of matrix products
    depend on it, so that whoever promises equal bits gives 1. None leaves it to the backend, which
    shares the cores among its workers. An error of one item ends all, and says which it was, by
    `names` or by number.
    """
    jobs = check_jobs(n_jobs)
    return list(_run(work, items, jobs, "list", threads=threads, names=names))


def iterate_in_order(
    work: Callable[[Item], Answer],
    items: Iterable[Item],
    *,
    n_jobs: int | None = None,
    threads: int | None = None,
) -> Generator[Answer, None, None]:
    """As `fan_out`, but each answer is given when it and those before it are there.

    Whoever stops asking abandons the items that are left; an item is taken only when it is begun,
    or soon will be. Where a backend gives its answers only all at once (ray does), they come at the
    end.
    """
    answers = iter(_run(work, items, check_jobs(n_jobs), "generator", threads=threads))
    try:
        # not `yield from`, which would hand a close on to joblib, and it warns of what is left
        for answer in answers:  # noqa: UP028
            yield answer
    finally:
        if isinstance(answers, Generator):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*tasks (have been|which were)", UserWarning)
                answers.close()


def iterate_as_completed(
    work: Callable[[Item], Answer],
    items: Iterable[Item],
    *,
    n_jobs: int | None = None,
    threads: int | None = None,
) -> Iterator[Answer]:
    """The answers to all items, each as soon as it is there; items are begun in their order.

    For whole runs: no more of them are begun than are at work.
    """
    listed, jobs = list(items), check_jobs(n_jobs)
    if jobs is not None and jobs > 0:
        jobs = min(jobs, max(1, len(listed)))
    few = {"batch_size": 1, "pre_dispatch": "n_jobs"}
    yield from _run(work, listed, jobs, "generator_unordered", few, threads=threads)


def _run(
    work: Callable[[Item], Answer],
    items: Iterable[Item],
    jobs: int | None,
    wanted: As,
    options: dict[str, Any] | None = None,
    *,
    threads: int | None = None,
    names: Sequence[str] | None = None,
) -> Iterable[Answer]:
    from joblib import Parallel, delayed
    from joblib.parallel import get_active_backend

    backend, _ = get_active_backend()
    if not getattr(backend, "supports_return_generator", False):
        wanted = "list"
    named: Iterable[str] = names or map("job {}".format, count(1))
    run = Parallel(n_jobs=jobs, return_as=wanted, **(options or {}))
    answers: Iterable[Answer] = run(
        delayed(_one)(work, item, name, threads)
        for item, name in zip(items, named, strict=names is not None)
    )
    return answers


def _one(work: Callable[[Item], Answer], item: Item, name: str, threads: int | None) -> Answer:
    with _Named(name), _computing_with(threads):
        return work(item)


class _Named:
    """An error that leaves this block notes in which item it happened; notes survive pickling."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"in {self.name}")


@contextmanager
def _computing_with(threads: int | None) -> Iterator[None]:
    if threads is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with _pools().limit(limits=threads):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def use_own_stream(device: str | torch.device) -> Iterator[None]:
    """On a GPU, work in a queue of this thread's own: several threads' overlap.

    A thread has one for good: torch has few of them and would give the same to two threads.
    """
    import torch

    place = torch.device(device)
    if place.type != "cuda":
        yield
        return
    known: dict[torch.device, torch.cuda.Stream] = OF_THREAD.__dict__.setdefault("streams", {})
    stream = known.get(place)
    if stream is None:
        stream = known[place] = torch.cuda.Stream(place)  # type: ignore[no-untyped-call]
    around = torch.cuda.current_stream(place)
    stream.wait_stream(around)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        around.wait_stream(stream)


@cache
def _pools() -> Any:
    """The libraries of this process that have threads; looking for them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
