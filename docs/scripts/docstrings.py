"""An extension of griffe: docstrings of this house as Markdown.

They are prose, which is shown as it stands, but for prompts of Python and for lists of parameters.
Docstrings that are put together when the module runs, and what settings say of themselves, are read
from the running package.
"""

from __future__ import annotations

import re
from importlib import import_module
from inspect import cleandoc
from typing import Any

import griffe

HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
ENTRY = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*) ?: (?=\S)", re.MULTILINE)
PROMPTS = re.compile(r"(?:^[ ]*(?:>>>|\.\.\.) ?.*\n?)+", re.MULTILINE)


class Docstrings(griffe.Extension):
    """What the pages under docs/reference show."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Docstrings made at run time; settings with their help and default."""
        if cls.docstring is None and "__doc__" in cls.members:
            text = as_markdown(cleandoc(_running(cls).__doc__ or ""))
            cls.docstring = griffe.Docstring(text, parent=cls)
        if cls.docstring is not None and "settings" in cls.path.lower():
            running = _running(cls)
            cls.docstring.value += _settings(running)
            _state_defaults(cls, running)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Prompts become blocks of code, parameters a list, their headings bold lines."""
    text = PROMPTS.sub(_block, text)
    text = HEADING.sub(r"\n**\1**\n", text)
    return "\n\n".join(map(_paragraph, re.split(r"\n{2,}", text)))


def _paragraph(text: str) -> str:
    """One that begins with `a, b: what they mean` is a list of such, each on lines of its own."""
    if not ENTRY.match(text):
        return text
    _, *parts = ENTRY.split(text)
    return "\n".join(map(_definition, parts[::2], parts[1::2]))


def _block(found: re.Match[str]) -> str:
    lines = [re.sub(r"^[ ]*(>>>|\.\.\.) ?", "", line) for line in found[0].splitlines()]
    return "\n```python\n" + "\n".join(lines) + "\n```\n"


def _definition(names: str, meaning: str) -> str:
    """An entry of a definition list."""
    term = ", ".join(f"`{name}`" for name in names.split(", "))
    lines = [line.strip() for line in meaning.strip().splitlines()]
    return f"{term}\n:   " + "\n    ".join(lines) + "\n"


def _running(cls: griffe.Class) -> Any:
    value: Any = import_module(cls.module.path)
    for name in cls.path.removeprefix(f"{cls.module.path}.").split("."):
        value = getattr(value, name)
    return value


def _state_defaults(cls: griffe.Class, running: Any) -> None:
    """Defaults in the signature as values, in place of the calls that state them."""
    known = getattr(running, "__dataclass_fields__", {})
    made = cls.members.get("__init__")
    for parameter in getattr(made, "parameters", ()):
        if parameter.name in known and parameter.default is not None:
            parameter.default = repr(known[parameter.name].default)


def _settings(settings: Any) -> str:
    """A list of all settings with default and help; empty where the class has none."""
    entries = []
    for name, field in getattr(settings, "__dataclass_fields__", {}).items():
        about = field.metadata.get("about")
        if about is not None and about.help:
            entries.append(f"`{name}` = `{field.default!r}`\n:   {about.help}\n")
    return "\n\n**Settings**\n\n" + "\n".join(entries) if entries else ""
