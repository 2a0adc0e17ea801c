"""Seconds by step: the innermost step takes them, and laps lose none."""

from __future__ import annotations

import contextlib

import pytest

from cg4ai import clock as clocks
from cg4ai.clock import OTHER, Stopwatch


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(clocks, "time", made)
    return made


def test_a_second_belongs_to_the_innermost_step(clock: Clock) -> None:
    watch = Stopwatch()
    clock.now += 1
    with watch.measure_step("audits"):
        clock.now += 2
        with watch.measure_step("search"):
            clock.now += 4
        clock.now += 8
    assert watch.take_lap() == {OTHER: 1, "audits": 10, "search": 4}


def test_laps_add_up_and_begin_anew(clock: Clock) -> None:
    watch = Stopwatch()
    with watch.measure_step("master"):
        clock.now += 1
        first = watch.take_lap()
        clock.now += 2
    clock.now += 4
    assert dict(first) == {OTHER: 0, "master": 1}
    assert watch.take_lap() == {"master": 2, OTHER: 4}
    assert sum(watch.take_lap().values()) == 0


def test_a_step_that_fails_keeps_its_seconds(clock: Clock) -> None:
    watch = Stopwatch()
    with contextlib.suppress(KeyboardInterrupt), watch.measure_step("pricing"):
        clock.now += 3
        raise KeyboardInterrupt
    clock.now += 1
    assert watch.take_lap() == {OTHER: 1, "pricing": 3}
