"""The twenty wishes: all are listed, here and in the documentation, and one of them is tried."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from experiments.command import command
from experiments.wishes import WISHES, common
from experiments.wishes.__main__ import wishes

DOCS = Path(__file__).parents[3] / "docs" / "wishes.md"


def test_twenty_are_listed_and_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(wishes, "wishes", "", ["--list"]) == 0
    table, page = capsys.readouterr().out, DOCS.read_text("utf-8")
    assert len(WISHES) == len(set(WISHES)) == 20
    for name in WISHES:
        wish = import_module(f"experiments.wishes.{name}").WISH
        assert name.endswith(f"_{wish.number}")
        for text in (table, page):
            assert f"[{wish.name}]({wish.link})" in text


def test_one_is_fulfilled_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightgbm")
    asked = ["lightgbm_5358", "--out", str(tmp_path)]
    assert command(wishes, "wishes", "", asked) == 0
    assert (tmp_path / "wishes.md").read_text() in capsys.readouterr().out
    assert command(wishes, "wishes", "", ["lightgbm_1"]) == 2


def test_what_is_not_installed_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    wish = common.Wish("Nothing", "no_such_package", 1, "https://example.org", "Nothing.", "")
    assert common.main(wish, lambda: pytest.fail("tried"), []) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no_such_package" in line
