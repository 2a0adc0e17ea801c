"""A hook of mkdocs: files that lie beside docs/ become pages of the site, without a second copy.

The changelog, the notes for contributors and the examples stay where people look for them in a
checkout. Links are written for a checkout, too; here they are turned to the pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# where each file of the checkout is in the site
BESIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
EXAMPLES = "examples.md"
ALONE = ("index.md", "getting-started.md")  # no other page beside them
HOME = "README.md"
PICTURES = ROOT / "docs" / "gallery" / "pictures.json"
GALLERY = re.compile(r"<!-- gallery: ([\w-]+) -->")
NONE_TAKEN = (
    "*There is no picture here: no Chromium was found where this site was built. The page itself "
    "is linked above.*"
)
NOT_MADE = "*The pictures have not been made yet: `make docs` makes them.*"
FILE = re.compile(r"\[(docs/)?[\w-]+\.md\]")  # words of a link
LINK = re.compile(r"(!?\[[^\]]*\])\((?!\w+:|#)([^)#\s]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of files beside docs/."""
    for source, target in BESIDE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text("utf-8")))
    files.append(File.generated(config, EXAMPLES, content=_examples()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Links as seen from the page's place in the checkout become links between pages."""
    target = page.file.src_uri
    if target in ALONE:
        page.meta["hide"] = ["navigation"]
    source = next((source for source, made in BESIDE.items() if made == target), f"docs/{target}")

    def turned(found: re.Match[str]) -> str:
        words, path, anchor = found[1], found[2], found[3] or ""
        origin = normpath(str(PurePosixPath(source).parent / path))
        place = _in_site(origin)
        if FILE.fullmatch(words):
            words = f"[{_title(ROOT / origin)}]"
        if place is None:
            return words.strip("[]")  # a file of the checkout that the site does not have
        return f"{words}({relpath(place, PurePosixPath(target).parent)}{anchor})"

    return GALLERY.sub(_pictures, _outside_code(markdown, turned))


def _title(file: Path) -> str:
    """The heading of a page: readers of the site see no files."""
    title = file.read_text("utf-8").split("\n", 1)[0].removeprefix("# ").replace("`", "")
    return title if title.endswith("results") else title.split(":")[0]


def _in_site(place: str) -> str | None:
    """Where the site has what lies at `place` in the checkout; None: nowhere."""
    if place in BESIDE:
        return BESIDE[place]
    if place == HOME:
        return "index.md"
    if place == "examples" or place.startswith("examples/"):
        return EXAMPLES
    return place.removeprefix("docs/") if place.startswith("docs/") else None


def _outside_code(markdown: str, turned: Callable[[re.Match[str]], str]) -> str:
    """Replace links, but for those in fenced blocks, which are code."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if number % 2 else LINK.sub(turned, part) for number, part in enumerate(parts)
    )


def _examples() -> str:
    """The examples as one page: what each says of itself, and its code."""
    parts = ["# Examples\n\nWhole programs, which run as they are: `python examples/NAME.py`.\n"]
    for file in sorted((ROOT / "examples").glob("*.py")):
        parts.append(f"## {file.stem}\n\n```python\n{file.read_text('utf-8')}```\n")
    return "\n".join(parts)


def _pictures(found: re.Match[str]) -> str:
    """The pictures of a group, and links to pages; words where there are none."""
    if not PICTURES.exists():
        return NOT_MADE
    made = [one for one in json.loads(PICTURES.read_text("utf-8")) if one["group"] == found[1]]
    if found[1] == "pages":
        return "\n".join(f"- [{one['caption']}](gallery/{one['file']})" for one in made)
    if not made:
        return NONE_TAKEN
    return "\n".join(['<div class="pictures" markdown>', *map(_figure, made), "</div>"])


def _figure(one: dict[str, str]) -> str:
    file, caption = f"gallery/{one['file']}", one["caption"]
    return (
        f'<figure class="{_shape(file)}" markdown="span">\n'
        f"[![{caption.replace('`', '')}]({file})]({file})\n"
        f'<figcaption markdown="span">{caption}</figcaption>\n</figure>'
    )


def _shape(file: str) -> str:
    """Pages on a telephone are shown as small as they are."""
    return "narrow" if "-narrow-" in file else "wide"
