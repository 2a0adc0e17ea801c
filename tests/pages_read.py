"""HTML pages as tests read them: well-formed, with what they show, name and refer to."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = ("meta", "br", "hr", "img", "input", "link")


class Page(HTMLParser):
    """A page whose elements all end where they should."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str | None]] = []
        self.counts: dict[str, int] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    @property
    def words(self) -> str:
        """All that is shown, spaces as they are read."""
        shown = (text for tag, texts in self.texts.items() if tag != "style" for text in texts)
        return " ".join(" ".join(shown).split())

    def values(self, name: str) -> list[str]:
        return [value or "" for key, value in self.attributes if key == name]

    def check_references(self) -> None:
        """Ids are unique, all references lead somewhere on the page, nothing is fetched."""
        ids = self.values("id")
        assert len(ids) == len(set(ids))
        inner = [one.removeprefix("#") for one in self.values("href") if one.startswith("#")]
        inner += re.findall(
            r"url\(#([^)]*)\)", " ".join(value or "" for _, value in self.attributes)
        )
        assert set(inner) <= set(ids)
        outer = [one for one in self.values("href") + self.values("src") if not one.startswith("#")]
        assert all(one.startswith("data:image/") or one.endswith("report.html") for one in outer)
