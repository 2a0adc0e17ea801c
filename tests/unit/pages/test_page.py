"""One file with everything in it, whatever names and texts it is given."""

from __future__ import annotations

import json
import re

import pytest

from cg4ai.pages import escape, render_page
from pages_read import Page

HOSTILE = '</script><script>alert("x")</script> & "quoted" \u2028 <!-- ünïcode'


def test_data_come_back_as_they_were_and_end_no_element() -> None:
    data = {"name": HOSTILE, "numbers": [0.1, 1e-300, 3]}
    made = Page(render_page("A page", "<main></main>", data=data))
    (stored,) = made.texts["script"]
    assert json.loads(stored) == data


def test_titles_are_text() -> None:
    made = Page(render_page(HOSTILE, f'<p title="{escape(HOSTILE)}">{escape(HOSTILE)}</p>'))
    assert made.texts["title"] == [HOSTILE]
    assert made.texts["p"] == [HOSTILE]
    assert ("title", HOSTILE) in made.attributes


def test_nothing_is_fetched() -> None:
    text = render_page("A page", "<main></main>")
    assert not re.search(r"(src|href)=|url\(|@import|https?:", text)
    assert "default-src 'none'" in text


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        render_page("A page", "", data=[float("nan")])
