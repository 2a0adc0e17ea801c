"""How the checker says no, and the parent of all errors of cg4ai, which imports it from here."""

from __future__ import annotations


class Cg4aiError(Exception):
    """Parent of every error raised on purpose by cg4ai and by this checker.

    `code` says what is wrong in a word for programs, e.g. "shape". Messages may change between
    releases; classes and codes do not.
    """

    code = "error"

    def __init__(self, *words: object, code: str | None = None) -> None:
        super().__init__(*words)
        if code is not None:
            self.code = code


class Unreadable(Cg4aiError, OSError):
    """A certificate or a run folder cannot be read or is damaged; the message names the file."""

    code = "unreadable"


class Rejected(Cg4aiError, ValueError):
    """The certificate is altered, malformed, or its claim could not be proven again."""

    code = "rejected"


class OutOfTime(Rejected):
    """The check was ended by its time limit; a longer one may prove the claim."""

    code = "time-limit"
