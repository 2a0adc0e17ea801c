"""Ctrl-C stops computation at once, waits while the master changes, and is put back after."""

from __future__ import annotations

import signal
import threading

import pytest

from cg4ai.colgen.interrupts import Interrupted, Interrupts
from cg4ai.errors import Cg4aiError


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_outside_allowed_stretches_it_is_only_remembered() -> None:
    with Interrupts() as interrupts:
        assert not interrupts.requested
        press()
        assert interrupts.requested


def test_inside_it_raises_at_once_and_is_remembered() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.allow_interrupts():
            press()
        assert interrupts.requested


def test_an_allowed_stretch_does_not_begin_once_it_was_requested() -> None:
    with Interrupts() as interrupts:
        press()
        with pytest.raises(KeyboardInterrupt), interrupts.allow_interrupts():
            raise AssertionError("not reached")


def test_after_an_allowed_stretch_it_waits_again() -> None:
    with Interrupts() as interrupts:
        with interrupts.allow_interrupts():
            pass
        press()
        assert interrupts.requested


def test_a_second_one_is_not_asked_to_wait() -> None:
    with Interrupts():
        press()
        with pytest.raises(KeyboardInterrupt):
            press()


def test_the_handler_before_is_put_back_even_after_an_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(RuntimeError), Interrupts():
        raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_it_does_nothing() -> None:
    seen: list[bool] = []
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with Interrupts() as interrupts, interrupts.allow_interrupts():
            seen.append(interrupts.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_with_nothing_to_return_is_both_an_interrupt_and_one_of_our_errors() -> None:
    assert issubclass(Interrupted, KeyboardInterrupt)
    assert issubclass(Interrupted, Cg4aiError)
