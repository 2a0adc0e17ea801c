"""Expect an error by its class and code: messages may be worded anew without a test noticing."""

from __future__ import annotations

import pytest

from cg4ai.errors import CODES, Cg4aiError


def raises(
    kind: type[Cg4aiError] | type[BaseException], code: str, *facts: object
) -> pytest.RaisesExc[BaseException]:
    """`pytest.raises` for an error of this class with this code.

    `facts` are of the case, such as the name of a rule or file; the message must hold each.
    """
    assert code in CODES, f"unknown code {code!r}"

    def check(error: BaseException) -> bool:
        assert isinstance(error, Cg4aiError)
        assert error.code == code, f"{error.code!r}, expected {code!r}: {error}"
        missing = [fact for fact in map(str, facts) if fact not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        return True

    return pytest.raises(kind, check=check)
