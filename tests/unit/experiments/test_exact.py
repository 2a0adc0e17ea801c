"""The study of exact separation: its cases agree, and its commands run."""

from __future__ import annotations

import pytest

from experiments.exact.__main__ import agreement


def test_programs_and_enumeration_agree() -> None:
    lines = list(agreement(4))
    assert [line["case"] for line in lines] == [0, 1, 2, 3]
    for line in lines:
        assert line["input_off_by"] == pytest.approx(0, abs=1e-6)
        assert line["bound_off_by"] == pytest.approx(0, abs=1e-5)
