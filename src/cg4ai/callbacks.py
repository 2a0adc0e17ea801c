"""Callbacks of a run: called after every iteration, to log it or to end training early.

A callback is a function of the record of an iteration, or an object with `on_iteration(record)`
and, if it likes, `on_start(history)` and `on_end(result)`. Whoever returns True ends training: in
an orderly way, as a time limit does. `EarlyStopping`, `TensorBoard` and `MLflow` are ready-made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.extras import import_optional
from cg4ai.records import PLAIN, STAND_IN, IterationRecord, StopReason

if TYPE_CHECKING:
    from cg4ai.colgen.result import Result

__all__ = [
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "MLflow",
    "TensorBoard",
]

HOOKS = ("on_start", "on_iteration", "on_end")
ROUNDING = 1e-6  # slack that differs by no more is the same
FINAL = ("loss", "feasible", "seconds")  # of a result, that MLflow gets as metrics


class Callback(Protocol):
    """What `solve` and the estimators take beside plain functions of a record.

    Two further methods are called where there are any. `on_start(history)` comes first, with the
    records of a run that is resumed, which it may end by True, too, and none for a new one;
    `on_end(result)` comes last, with None in place of the result where an error ended training.
    """

    def on_iteration(self, record: IterationRecord) -> bool | None:
        """True ends training; the record is complete and, in a run folder, saved by then."""
        ...


class CallbackList:
    """The callbacks of one run, in order; those that were started are ended, whatever happens."""

    def __init__(self, callbacks: Any = None) -> None:
        self.callbacks = check_callbacks(callbacks)
        self._open: list[Any] = []

    def notify_start(self, history: Sequence[IterationRecord]) -> str:
        """Tell all that the run begins; the name of one that ends it at once, else empty.

        The first iteration is made in any case, as under a time limit.
        """
        ended = []
        for callback in self.callbacks:
            self._open.append(callback)
            ended.append(self._asked(callback, "on_start", tuple(history), "at the start"))
        return next(filter(None, ended), "") if history else ""

    def notify_iteration(self, record: IterationRecord) -> str:
        """Tell all of an iteration; the name of the first that ends the run, else empty."""
        when = f"at iteration {record.iteration}"
        ended = [self._asked(one, "on_iteration", record, when) for one in self.callbacks]
        return next(filter(None, ended), "")

    def notify_end(self, result: Result | None) -> None:
        """Tell all that it is over, also where one of them fails."""
        started, self._open = self._open, []
        with ExitStack() as rest:
            for callback in reversed(started):
                rest.callback(self._asked, callback, "on_end", result, "at the end")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.notify_end(None)

    @staticmethod
    def _asked(callback: Any, hook: str, value: Any, when: str) -> str:
        """The name of the callback if it answers True, else empty."""
        function = getattr(callback, hook, None)
        if function is None and hook == "on_iteration" and callable(callback):
            function = callback
        if function is None:
            return ""
        with _named(callback, when):
            answer = function(value)
        # a function that happens to return something, such as a count, means nothing by it
        return name_of(callback) if isinstance(answer, bool | np.bool_) and answer else ""


def check_callbacks(callbacks: Any) -> tuple[Any, ...]:
    """The callbacks as a tuple; what is none is refused with what to do."""
    if callbacks is None:
        return ()
    if _is_callback(callbacks):
        raise InvalidInput(
            f"callbacks must be a list: write callbacks=[{name_of(callbacks)}]", code="type"
        )
    if not isinstance(callbacks, list | tuple):
        raise InvalidInput(f"callbacks must be a list, got {type(callbacks).__name__}", code="type")
    for one in callbacks:
        if isinstance(one, type) or not _is_callback(one):
            made = f"; write {one.__name__}(...)" if isinstance(one, type) else ""
            raise InvalidInput(
                "a callback is a function of an iteration's record, or an object with "
                f"{', '.join(HOOKS[:-1])} or {HOOKS[-1]}, got {one!r:.80}{made}",
                code="type",
            )
    return tuple(callbacks)


def _is_callback(value: Any) -> bool:
    return callable(value) or any(callable(getattr(value, hook, None)) for hook in HOOKS)


def name_of(callback: Any) -> str:
    """What messages call it: the name of a function or of a class."""
    return str(getattr(callback, "__qualname__", None) or type(callback).__name__)


@contextmanager
def _named(callback: Any, when: str) -> Iterator[None]:
    """An error passes with a note of who raised it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by the callback {name_of(callback)} {when}")
        raise


def numbers_of(record: IterationRecord) -> dict[str, float]:
    """The numbers of a record that are known, by name: what logs draw over iterations."""
    found = {one.name: getattr(record, one.name) for one in fields(record)}
    return {
        name: float(value)
        for name, value in found.items()
        if name != "iteration" and isinstance(value, int | float) and abs(value) < STAND_IN
    }


@dataclass
class EarlyStopping:
    """Ends training after `patience` iterations in a row that brought nothing.

    An iteration brings something if rules that are not met yet lack less by more than `min_change`
    or, with no more lacking, the objective falls by more than that. Iterations before the rules
    are bound do not count, and a new phase starts afresh.
    """

    patience: int = 5
    min_change: float = 0.0
    _best: IterationRecord | None = field(default=None, init=False, repr=False)
    _without: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        whole = isinstance(self.patience, int | np.integer) and not isinstance(self.patience, bool)
        if not whole or self.patience < 1:
            raise InvalidInput(
                f"patience must be a whole number >= 1, got {self.patience!r}", code="range"
            )
        if not 0 <= self.min_change < math.inf:
            raise InvalidInput(
                f"min_change must be a number >= 0, got {self.min_change!r}", code="range"
            )

    def on_start(self, history: Sequence[IterationRecord]) -> bool:
        """Begin again; the records of a resumed run count as if they came now."""
        self._best, self._without = None, 0
        ended = False
        for record in history:
            ended = self.on_iteration(record)
        return ended

    def on_iteration(self, record: IterationRecord) -> bool:
        if record.phase == PLAIN:
            return False
        if self._best is None or self._better(record, self._best):
            self._best, self._without = record, 0
        else:
            self._without += 1
        return self._without >= self.patience

    def _better(self, record: IterationRecord, best: IterationRecord) -> bool:
        fell = best.slack - record.slack
        if record.phase != best.phase or fell > max(self.min_change, ROUNDING):
            return True
        return fell >= -ROUNDING and record.objective < best.objective - self.min_change


@dataclass
class TensorBoard:
    """Writes the numbers of every iteration, and the result in words, for TensorBoard to show.

    >>> cg4ai.solve(problem, callbacks=[TensorBoard("logs/first")])

    `tensorboard --logdir logs` shows them. The numbers are those of `IterationRecord`, under
    `prefix/`. A run that is resumed goes on where it was.
    """

    logdir: str | Path
    prefix: str = "cg4ai"
    _writer: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        import_optional("tensorboard")  # refused here if it is missing, before anything is trained

    def on_start(self, history: Sequence[IterationRecord]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # what a killed run wrote of iterations that are made again is hidden
        self._writer = SummaryWriter(str(self.logdir), purge_step=len(history) or None)

    def on_iteration(self, record: IterationRecord) -> None:
        for name, value in numbers_of(record).items():
            self._writer.add_scalar(f"{self.prefix}/{name}", value, record.iteration)
        if record.note:
            self._writer.add_text(f"{self.prefix}/note", record.note, record.iteration)
        self._writer.flush()

    def on_end(self, result: Result | None) -> None:
        if self._writer is None:  # it could not be opened
            return
        if result is not None:
            # Markdown joins lines that no blank line parts
            words = str(result).replace("\n", "\n\n")
            self._writer.add_text(f"{self.prefix}/result", words, len(result.history))
        self._writer.close()
        self._writer = None


@dataclass
class MLflow:
    """Logs the numbers of every iteration as metrics of the active MLflow run.

    Without an active run one is started, under `run_name` if that is given, and ended with
    training. The reason that training ended for becomes the tag `stop_reason`.
    """

    run_name: str | None = None
    _started: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        import_optional("mlflow")  # refused here if it is missing, before anything is trained

    def on_start(self, history: Sequence[IterationRecord]) -> None:
        mlflow = import_optional("mlflow")
        if mlflow.active_run() is None:
            mlflow.start_run(run_name=self.run_name)
            self._started = True

    def on_iteration(self, record: IterationRecord) -> None:
        import_optional("mlflow").log_metrics(numbers_of(record), step=record.iteration)

    def on_end(self, result: Result | None) -> None:
        mlflow = import_optional("mlflow")
        try:
            if result is not None:
                final = {name: float(getattr(result, name)) for name in FINAL}
                mlflow.log_metrics({f"final_{name}": value for name, value in final.items()})
                mlflow.set_tag("stop_reason", result.stop_reason.value)
        finally:
            if self._started:
                self._started = False
                mlflow.end_run(status=_status(result))


def _status(result: Result | None) -> str:
    """MLflow's word for how a run ended."""
    if result is None:
        return "FAILED"
    return "KILLED" if result.stop_reason is StopReason.INTERRUPTED else "FINISHED"


def __dir__() -> list[str]:
    return __all__
