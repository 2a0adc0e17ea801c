"""Check the built site: links lead to pages and anchors that exist, and nothing is fetched.

`python docs/scripts/links.py site`; ends with code 1 and a line for each fault. Links to other
hosts are left alone: they are for people to follow.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# what a browser loads by itself; `a` is what people follow
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_LOADED = {"canonical", "next", "prev"}
FOREIGN = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//")


class Page(HTMLParser):
    """The anchors of a page, what it links to, and what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif given.get(LOADED.get(tag, "")) and given.get("rel") not in NOT_LOADED:
            self.loads.append(given[LOADED[tag]])


def faults(site: Path) -> list[str]:
    """What is wrong, in words, with every page and style sheet below `site`."""
    pages = {file.resolve(): Page(file) for file in sorted(site.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        name = file.relative_to(site.resolve())
        for address in [*page.links, *page.loads]:
            fault = _fault(address, file, pages, site.resolve(), loaded=address in page.loads)
            if fault:
                found.append(f"{name}: {address} {fault}")
    for style in sorted(site.rglob("*.css")):
        if FOREIGN.search(style.read_text("utf-8")):
            found.append(f"{style.relative_to(site)}: loads from another host")
    return found


def _fault(address: str, file: Path, pages: dict[Path, Page], site: Path, *, loaded: bool) -> str:
    """What is wrong with one address on a page; empty if nothing."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        elsewhere = parts.scheme in ("http", "https", "") and loaded
        return "is loaded from another host" if elsewhere else ""
    if not parts.path:
        target = file
    elif parts.path.startswith("/"):
        target = site / unquote(parts.path).lstrip("/")
    else:
        target = (file.parent / unquote(parts.path)).resolve()
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return "does not exist"
    if parts.fragment and target in pages:
        known = pages[target].anchors
        return "" if unquote(parts.fragment) in known else "has no such anchor"
    return ""


def main() -> int:
    site = Path(sys.argv[1])
    found = faults(site)
    print("\n".join(found) or f"links of {len(list(site.rglob('*.html')))} pages lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
