"""One HTML file: a body with the styles, scripts and data it needs inside it.

Nothing is fetched: a page opens from `file:`. Data travel as JSON in an element that scripts read;
whatever text comes from users or files is escaped.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files as resources
from typing import Any

STYLE = "style.css"
# nothing from elsewhere, whatever a name in a run may say
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def escape(text: object) -> str:
    """Text as it is shown, whatever signs it has; also within an attribute's double quotes."""
    return html.escape(str(text), quote=True)


def render_page(
    title: str,
    body: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    data: Any = None,
) -> str:
    """The file's text. `styles` and `scripts` name files of this package, in their order.

    `data` (JSON) is what scripts find in the element `data`.
    """
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>",
        *(f"<style>\n{read_asset(name)}</style>" for name in (STYLE, *styles)),
        "</head>",
        "<body>",
        body,
    ]
    if data is not None:
        parts.append(f'<script type="application/json" id="data">{json_text(data)}</script>')
    parts += [f"<script>\n{read_asset(name)}</script>" for name in scripts]
    return "\n".join([*parts, "</body>", "</html>", ""])


def read_asset(name: str) -> str:
    """The text of a file of this package."""
    return resources("cg4ai.pages").joinpath(name).read_text(encoding="utf-8")


def json_text(data: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
