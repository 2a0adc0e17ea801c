"""Ctrl-C that loses nothing: it stops training at once, but never half-way through an update."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from cg4ai.errors import Cg4aiError


class Interrupted(Cg4aiError, KeyboardInterrupt):
    """Ctrl-C came before there was anything to return."""

    code = "interrupted"


class Interrupts:
    """While entered, Ctrl-C sets `requested`; inside `allowed()` it also raises at once.

    Steps that only compute (pricing, separation) run inside `allowed()`; steps that change the
    master do not, so an interrupt never leaves it inconsistent. Outside the main thread, where
    Python delivers no signals, this does nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._may_raise = False
        self._previous: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and not self._may_raise:
            raise KeyboardInterrupt  # a second Ctrl-C is not asked to wait
        self.requested = True
        if self._may_raise:
            raise KeyboardInterrupt

    @contextmanager
    def allow_interrupts(self) -> Iterator[None]:
        """A stretch of pure computation that Ctrl-C may cut short."""
        if self.requested:
            raise KeyboardInterrupt
        self._may_raise = True
        try:
            yield
        finally:
            self._may_raise = False
