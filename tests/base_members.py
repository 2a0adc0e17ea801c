"""Base members of digits trained once for all tests of a file that imports this fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cg4ai.members import NetworkMembers
from cg4ai.records import Array, IntArray
from experiments.digits import app
from experiments.digits.members import base_member

KNOWN: dict[Any, NetworkMembers] = {}


@pytest.fixture(scope="module", autouse=True)
def base_members_trained_once() -> Iterator[None]:
    """Every run on digits trains the base member of its images: here once for the same ones."""

    def remembered(images: Array, labels: IntArray, **asked: Any) -> NetworkMembers:
        key = (images.tobytes(), labels.tobytes(), *sorted(asked.items()))
        if key not in KNOWN:
            KNOWN[key] = base_member(images, labels, **asked)
        return KNOWN[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "base_member", remembered)
        yield
