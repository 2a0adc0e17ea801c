"""What a server counts, in the form that Prometheus reads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cg4ai.apps.predictions import Predictions
from cg4ai.extras import import_optional

if TYPE_CHECKING:
    from cg4ai.report.card import ModelCard

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True, slots=True)
class SeenRow:
    """Whether a row lay outside the region, and the limit that it exceeds most, by what factor."""

    outside: bool
    limit: str
    factor: float


class DriftWindow:
    """The last rows that were predicted, from any thread."""

    def __init__(self, rows: int) -> None:
        self._seen: deque[SeenRow] = deque(maxlen=rows)
        self._lock = threading.Lock()

    def add(self, found: Predictions) -> None:
        """The rows of an answer."""
        excess, last = found.excess, max(0, len(found.rows) - (self._seen.maxlen or 0))
        seen = []
        for number, outside in enumerate(found.outside[last:].tolist(), start=last):
            limit, factor = "", 0.0
            if outside and excess is not None:
                limit = excess.limits[int(excess.worst[number])]
                factor = float(excess.factors[number])
            seen.append(SeenRow(outside, limit, factor))
        with self._lock:
            self._seen.extend(seen)

    def clear(self) -> None:
        """Forget all: another run answers."""
        with self._lock:
            self._seen.clear()

    def look(self) -> list[SeenRow]:
        """The rows as they are now."""
        with self._lock:
            return list(self._seen)


class Metrics:
    """Counters of one server; `waiting` says how many requests there are now.

    `drift_window`: over how many of the last rows drift is looked at.
    """

    def __init__(self, waiting: Callable[[], float], drift_window: int = 1000) -> None:
        made = import_optional("prometheus_client")
        self._text = made.generate_latest
        self.content_type: str = made.CONTENT_TYPE_LATEST
        self.registry = made.CollectorRegistry()
        made.ProcessCollector(registry=self.registry)
        own = {"registry": self.registry}
        self._requests = made.Counter(
            "cg4ai_requests", "Requests by endpoint and HTTP code.", ["endpoint", "code"], **own
        )
        self._seconds = made.Histogram(
            "cg4ai_request_seconds",
            "From the head of a request to the last byte of its answer.",
            ["endpoint"],
            buckets=SECONDS,
            **own,
        )
        self._rows = made.Counter("cg4ai_rows", "Rows predicted.", **own)
        self._outside = made.Counter(
            "cg4ai_rows_outside",
            "Rows outside the region of a rule that holds most of the training data.",
            **own,
        )
        self._moved = made.Counter(
            "cg4ai_rows_shielded", "Rows whose answer a shield moved towards its anchor.", **own
        )
        self._answers = made.Counter(
            "cg4ai_answers",
            "Answers of a router by origin: router, improved or solved.",
            ["origin"],
            **own,
        )
        self._changes = made.Counter(
            "cg4ai_changes",
            "Answers of a router with bounded changes: free, limited or yielded (moved further so "
            "that no link is overloaded).",
            ["outcome"],
            **own,
        )
        self._reloads = made.Counter(
            "cg4ai_reloads", "Reloads: loaded, unchanged or failed.", ["outcome"], **own
        )
        self._model = made.Gauge(
            "cg4ai_model_info",
            "The run that answers.",
            ["model", "application", "version"],
            **own,
        )
        self._window, self._answering = DriftWindow(drift_window), ""
        self._drift_rows = made.Gauge(
            "cg4ai_drift_rows", "The last rows predicted, over which drift is looked at.", **own
        )
        self._drift_share = made.Gauge(
            "cg4ai_drift_outside_share", "Share of these rows outside the region.", **own
        )
        self._drift_factor = made.Gauge(
            "cg4ai_drift_largest_factor",
            "By what factor one of these rows exceeds a limit of the region most.",
            ["limit"],
            **own,
        )
        made.Gauge(
            "cg4ai_requests_waiting", "Requests that are read, wait or are computed.", **own
        ).set_function(waiting)

    def count_answer(self, endpoint: str, code: int, seconds: float) -> None:
        """Count a request that was answered, or refused."""
        self._requests.labels(endpoint, str(code)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def count_rows(self, found: Predictions) -> None:
        """Count the rows of an answer."""
        self._rows.inc(len(found.rows))
        self._outside.inc(int(found.outside.sum()))
        self._moved.inc(found.moved or 0)
        self._window.add(found)
        count = found.fallback
        if count is not None and count.gap is not None:
            self._answers.labels("router").inc(count.router)
            self._answers.labels("improved").inc(count.improved)
            self._answers.labels("solved").inc(count.solved)
        if (changes := found.changes) is not None:
            held = changes.held
            self._changes.labels("free").inc(changes.rows - held - changes.yielded)
            self._changes.labels("limited").inc(held)
            self._changes.labels("yielded").inc(changes.yielded)

    def record_run(self, card: ModelCard) -> None:
        """Say which run answers from now on; the rows before it say nothing of its region."""
        if card.model != self._answering:
            self._window.clear()
        self._answering = card.model
        self._model.clear()
        self._model.labels(card.model, card.application, card.version).set(1)

    def count_reload(self, outcome: str) -> None:
        """Count an attempt to load the run anew."""
        self._reloads.labels(outcome).inc()

    def format_text(self) -> bytes:
        """All of it, for Prometheus."""
        seen = self._window.look()
        self._drift_rows.set(len(seen))
        self._drift_share.set(sum(row.outside for row in seen) / len(seen) if seen else 0.0)
        self._drift_factor.clear()
        named = [row for row in seen if row.limit]
        if named:
            worst = max(named, key=lambda row: row.factor)
            self._drift_factor.labels(worst.limit).set(worst.factor)
        content: bytes = self._text(self.registry)
        return content
