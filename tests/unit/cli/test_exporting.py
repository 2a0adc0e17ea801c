"""Exports that take long say what they do."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from cg4ai import clock
from cg4ai.cli.export import _said


class Heard(io.StringIO):
    """A stream that notes when a line is complete."""

    def __init__(self) -> None:
        super().__init__()
        self.line = threading.Event()

    def flush(self) -> None:
        self.line.set()


def test_an_export_that_takes_long_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "LONG_S", 0.0)
    stream = Heard()
    monkeypatch.setattr(sys, "stderr", stream)
    with _said("the ONNX model of 3 members"):
        assert stream.line.wait(60)
    assert stream.getvalue() == "exporting: the ONNX model of 3 members\n"
