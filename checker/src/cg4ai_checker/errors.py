"""How the checker says no, and the parent of all errors of cg4ai, which imports it from here."""

from __future__ import annotations


class Cg4aiError(Exception):
    """Parent of every error raised on purpose by cg4ai and by this checker."""


class Unreadable(Cg4aiError, OSError):
    """A certificate or a run folder cannot be read or is damaged; the message names the file."""


class Rejected(Cg4aiError, ValueError):
    """The certificate is altered, malformed, or its claim could not be proven again."""


class OutOfTime(Rejected):
    """The check was ended by its time limit; a longer one may prove the claim."""
