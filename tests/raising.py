"""Expect an error by its class and code: messages may be worded anew without a test noticing."""

from __future__ import annotations

import pytest

from cg4ai.errors import CODES, Cg4aiError


def raises(
    kind: type[Cg4aiError], code: str, *, match: str | None = None
) -> pytest.RaisesExc[Cg4aiError]:
    """`pytest.raises` for an error of this class with this code.

    `match` is for facts of the case that the message must hold, such as the name of a file.
    """
    assert code in CODES, f"unknown code {code!r}"
    return pytest.raises(kind, match=match, check=lambda error: error.code == code)
