"""One file with everything in it, whatever names and texts it is given."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from cg4ai.pages import escaped, page

HOSTILE = '</script><script>alert("x")</script> & "quoted" \u2028 <!-- ünïcode'


class _Read(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in ("meta", "br", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)


def read(text: str) -> _Read:
    reader = _Read()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_data_come_back_as_they_were_and_end_no_element() -> None:
    data = {"name": HOSTILE, "numbers": [0.1, 1e-300, 3]}
    made = read(page("A page", "<main></main>", data=data))
    (stored,) = made.texts["script"]
    assert json.loads(stored) == data


def test_titles_are_text() -> None:
    made = read(page(HOSTILE, f'<p title="{escaped(HOSTILE)}">{escaped(HOSTILE)}</p>'))
    assert made.texts["title"] == [HOSTILE]
    assert made.texts["p"] == [HOSTILE]
    assert ("title", HOSTILE) in made.attributes


def test_nothing_is_fetched() -> None:
    text = page("A page", "<main></main>")
    assert not re.search(r"(src|href)=|url\(|@import|https?:", text)
    assert "default-src 'none'" in text


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        page("A page", "", data=[float("nan")])
