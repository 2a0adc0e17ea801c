"""What a server counts, in the form that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cg4ai.apps.predictions import Predictions
from cg4ai.extras import import_optional

if TYPE_CHECKING:
    from cg4ai.report.card import ModelCard

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters of one server; `waiting` says how many requests there are now."""

    def __init__(self, waiting: Callable[[], float]) -> None:
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
        self._reloads = made.Counter(
            "cg4ai_reloads", "Reloads: loaded, unchanged or failed.", ["outcome"], **own
        )
        self._model = made.Gauge(
            "cg4ai_model_info",
            "The run that answers.",
            ["model", "application", "version"],
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
        count = found.fallback
        if count is not None and count.gap is not None:
            self._answers.labels("router").inc(count.router)
            self._answers.labels("improved").inc(count.improved)
            self._answers.labels("solved").inc(count.solved)

    def record_run(self, card: ModelCard) -> None:
        """Say which run answers from now on."""
        self._model.clear()
        self._model.labels(card.model, card.application, card.version).set(1)

    def count_reload(self, outcome: str) -> None:
        """Count an attempt to load the run anew."""
        self._reloads.labels(outcome).inc()

    def format_text(self) -> bytes:
        """All of it, for Prometheus."""
        content: bytes = self._text(self.registry)
        return content
