"""The one way in which the checker says no."""

from __future__ import annotations

from cg4ai.errors import Cg4aiError


class Rejected(Cg4aiError, ValueError):
    """The certificate is altered, malformed, or its claim could not be proven again."""


class OutOfTime(Rejected):
    """The check was ended by its time limit; a longer one may prove the claim."""
