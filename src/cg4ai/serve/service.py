"""The run that answers, and the work behind each request: bounded, in time, off the event loop.

One thread computes, so that answers come one after the other and the event loop stays free for
health and refusals. A new run is loaded beside the old one and put in its place in one step;
requests that were taken before are answered by the old one.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from cg4ai.apps.changes import LastAnswer
from cg4ai.apps.csv_tables import CsvTable
from cg4ai.apps.predictions import TIME, RunPredictor, read_digest
from cg4ai.clock import Deadline
from cg4ai.errors import Cg4aiError, InvalidInput, RunFolderError
from cg4ai.report.card import ModelCard, card_of
from cg4ai.serve.limits import (
    Refusal,
    RequestSlots,
    ServeLimits,
    refuse_large_body,
    refuse_long_answer,
    refuse_slow_body,
)
from cg4ai.serve.messages import question_of
from cg4ai.serve.metrics import Metrics

MOST_NAMES = 1000  # of failures that are remembered with their folders
NO_ROWS = CsvTable(Path("no rows"), (), [], [])


class FailureRouters:
    """The routers of failures below a run's folder, each loaded when it is first asked for."""

    def __init__(self, folder: Path, whole: RunPredictor) -> None:
        self.folder, self.whole = folder, whole
        self._folders: dict[tuple[str, ...], Path] = {}
        self._loaded = {folder: whole}  # links that no path uses change nothing

    def find(self, links: tuple[str, ...]) -> RunPredictor:
        """That of links which fail together; an error where there is none."""
        if links not in self._folders:
            found = self.whole.described.find_failed_run(self.folder, links)
            if found not in self._loaded:
                self._loaded[found] = RunPredictor.from_folder(found)
            if read_digest(self.folder) != self.whole.digest:
                raise Refusal(
                    409, "the run in the folder is no longer the one that answers; reload it"
                )
            if len(self._folders) >= MOST_NAMES:  # of as many spellings as clients invent
                self._folders.clear()
            self._folders[links] = found
        return self._loaded[self._folders[links]]


@dataclass(frozen=True)
class LoadedRun:
    """A run that is ready to answer; `note` says what of it is missing, and `why` for the log."""

    predictor: RunPredictor
    card: ModelCard
    failures: FailureRouters
    note: str = ""
    why: str = ""


def load_run(folder: Path) -> LoadedRun:
    """The run in a folder with all that answers need, so that none waits for a file later."""
    predictor = RunPredictor.from_folder(folder)
    card, failures = card_of(folder, predictor), FailureRouters(folder, predictor)
    try:
        predictor.rules(NO_ROWS)
    except (Cg4aiError, OSError) as error:
        note = (
            "the files of the rules are not there as they were in training: explanations give "
            "what is recorded of each rule, and no slack"
        )
        return LoadedRun(replace(predictor, recorded_only=True), card, failures, note, str(error))
    return LoadedRun(predictor, card, failures)


class WindowMemory:
    """The last rows that were answered, for a run that reads windows of rows; else nothing.

    Used by the worker alone, so that rows follow one another in the order of requests. A new run
    that reads the same columns and as many rows goes on with them.
    """

    def __init__(self) -> None:
        self.last: LastAnswer | None = None  # from which the next one may move but little
        self._rows: CsvTable | None = None
        self._read: tuple[int, tuple[str, ...]] = (0, ())

    def extend(self, table: CsvTable, loaded: LoadedRun) -> tuple[CsvTable, int]:
        """The rows of a request after those before them, and how many these are."""
        read = _window_of(loaded)
        if self._read != read:
            self._rows, self._read = None, read
        if not read[0] or self._rows is None:
            return table, 0
        names, old = read[1], self._rows
        more = tuple(name for name in (TIME,) if name in table.names)
        columns = [table.cells_of(name) for name in (*names, *more)]
        new = [list(row) for row in zip(*columns, strict=True)]
        cells = [[*row, *more] for row in old.cells] + new
        both = CsvTable(
            table.path, (*names, *more), cells, [*old.lines, *table.lines], unit=table.unit
        )
        return both, len(old)

    def keep(self, table: CsvTable, loaded: LoadedRun) -> None:
        """Remember the last rows of a table that was answered."""
        window, names = _window_of(loaded)
        if window < 2:
            return
        columns = [table.cells_of(name)[1 - window :] for name in names]
        cells = [list(row) for row in zip(*columns, strict=True)]
        self._rows = CsvTable(table.path, names, cells, [0] * len(cells))


def _window_of(loaded: LoadedRun) -> tuple[int, tuple[str, ...]]:
    names = tuple(one.name for one in loaded.card.interface.inputs)
    return loaded.predictor.described.window, names


class Service:
    """Answers requests by the run in a folder, until another is loaded from there."""

    def __init__(self, folder: Path, limits: ServeLimits | None = None) -> None:
        self.folder = folder.absolute()
        self.limits = limits or ServeLimits()
        self.places = RequestSlots(self.limits)
        self.metrics = Metrics(lambda: self.places.taken, self.limits.drift_window)
        self.trouble = ""  # why the last reload failed
        self.current = load_run(self.folder)
        self._took_over()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="predictions")
        self._reloading = asyncio.Lock()
        self._window = WindowMemory()

    def close(self) -> None:
        """Compute nothing more that is not begun."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    # ---- predictions ------------------------------------------------------------------------

    async def answer(
        self,
        body: AsyncIterator[bytes],
        *,
        declared: int = 0,
        explain: bool = False,
        deadline: Deadline | None = None,
    ) -> bytes:
        """JSON for the body of a request, which says itself that it has `declared` bytes.

        Its time ends at `deadline`, which counts from the first byte of its head where a socket
        is read; without one it begins now. A `Refusal` where it is too much, or an
        `InvalidInput` where it is wrong.
        """
        deadline, loaded = deadline or Deadline.after(self.limits.seconds), self.current
        self.places.acquire()
        try:
            content = await self._read(body, declared, deadline)
        except BaseException:
            self.places.release()
            raise
        work = self._worker.submit(self._in_place, loaded, content, deadline, explain=explain)
        try:
            async with asyncio.timeout(deadline.compute_seconds_left()):
                # not cancelled: it keeps its place, and its memory, until the worker is past it
                return await asyncio.shield(asyncio.wrap_future(work))
        except TimeoutError:
            raise refuse_long_answer(self.limits) from None

    async def _read(self, body: AsyncIterator[bytes], declared: int, deadline: Deadline) -> bytes:
        """The whole body; no more of it than is allowed is ever held."""
        if declared > self.limits.body_bytes:
            raise refuse_large_body(self.limits)
        parts, size = [], 0
        try:
            async with asyncio.timeout(deadline.compute_seconds_left()):
                async for part in body:
                    size += len(part)
                    if size > self.limits.body_bytes:
                        raise refuse_large_body(self.limits)
                    parts.append(part)
        except TimeoutError:
            raise refuse_slow_body(self.limits) from None
        return b"".join(parts)

    def _in_place(
        self, loaded: LoadedRun, content: bytes, deadline: Deadline, *, explain: bool
    ) -> bytes:
        """The answer, computed by the worker; then the place is free for another."""
        try:
            return self._computed(loaded, content, deadline, explain=explain)
        finally:
            self.places.release()

    def _computed(
        self, loaded: LoadedRun, content: bytes, deadline: Deadline, *, explain: bool
    ) -> bytes:
        def pause() -> None:
            if deadline.passed:
                raise refuse_long_answer(self.limits)

        pause()
        question = question_of(content, self.limits, explain=explain)
        pause()
        predictor, model = loaded.predictor, loaded.card.model
        if question.failed:
            try:
                predictor = loaded.failures.find(question.failed)
            except InvalidInput as error:
                raise InvalidInput(hide_paths(str(error), self.folder), code=error.code) from error
            except RunFolderError as error:
                words = hide_paths(str(error), self.folder)
                raise Refusal(409, f"the router of this failure cannot be read: {words}") from error
            model = predictor.digest
        table, before = self._window.extend(question.table, loaded)
        found = predictor.predict(
            table,
            question.asked,
            count_moved=True,
            pause=pause,
            before=before,
            last=self._window.last,
        )
        # the rows of before have only the columns that are read
        found = replace(found, ignored=predictor.note_ignored(question.table))
        pause()
        text = found.as_json(model)
        self._window.keep(table, loaded)
        self._window.last = found.last
        self.metrics.count_rows(found)
        return text.encode()

    # ---- another run ------------------------------------------------------------------------

    async def reload(self) -> bool:
        """Load what is in the folder now; whether it is another run. `Refusal` if that fails."""
        with self.places:
            async with self._reloading:
                try:
                    loaded = await asyncio.to_thread(load_run, self.folder)
                except (Cg4aiError, MemoryError, OSError) as error:
                    raise self._not_reloaded(error) from error
                changed = loaded.card.model != self.current.card.model
                self.current, self.trouble = loaded, ""
                self._took_over()
                self.metrics.count_reload("loaded" if changed else "unchanged")
                return changed

    def _not_reloaded(self, error: BaseException) -> Refusal:
        words = str(error) or type(error).__name__
        print(f"not reloaded, the old run stays: {words}", file=sys.stderr, flush=True)
        self.metrics.count_reload("failed")
        self.trouble = hide_paths(words, self.folder)
        return Refusal(
            409, f"the run there now cannot be loaded, the old one stays: {self.trouble}"
        )

    def _took_over(self) -> None:
        """Say in metrics and log which run answers from now on."""
        loaded = self.current
        self.metrics.record_run(loaded.card)
        if loaded.note:
            print(f"note: {loaded.note} ({loaded.why})", file=sys.stderr, flush=True)


def hide_paths(text: str, folder: Path) -> str:
    """A message that names no place of this machine: the folder of the run is called RUN."""
    for name in (str(folder), str(folder.resolve())):
        text = text.replace(name, "RUN")
    return re.sub(r"(?<!\S)(/[^\s/]+){2,}", "...", text)
