"""Text, XML and JSON files parsed so that every entry knows its line: errors should say it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

from cg4ai.errors import InvalidInput
from cg4ai.routing.network.network import show_value
from cg4ai.runs import read_given

TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\n]')


def read_text(path: Path) -> str:
    """The file's text; what keeps it from being read becomes an error that names the file."""
    try:
        return read_given(path).decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput(
            f"{path}: cannot be read ({error.strerror}); check the path", code="bad-file"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path}: is not UTF-8 text ({error.reason}); save it as such", code="bad-file"
        ) from None


@dataclass
class Element:
    """An XML element that remembers its line, which the standard tree does not."""

    tag: str
    attributes: dict[str, str]
    place: str
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def find_all(self, tag: str) -> list[Element]:
        return [child for child in self.children if child.tag == tag]

    def find_one(self, tag: str) -> Element:
        found = self.find_all(tag)
        if len(found) != 1:
            raise InvalidInput(
                f"{self.place}: <{self.tag}> needs exactly one <{tag}>, got {len(found)}",
                code="bad-file",
            )
        return found[0]

    def get_content(self, tag: str) -> str:
        return self.find_one(tag).text.strip()

    def get_identifier(self) -> str:
        return self.get_attribute("id")

    def get_attribute(self, name: str) -> str:
        if name not in self.attributes:
            raise InvalidInput(
                f"{self.place}: <{self.tag}> needs an attribute {name!r}", code="bad-file"
            )
        return self.attributes[name]


def parse_xml(path: Path) -> Element:
    """The root element; a file that is not well-formed or declares entities is refused."""
    return parse_xml_text(read_text(path), str(path))


def parse_xml_text(text: str, path: str) -> Element:
    """The root element of a text that errors call `path`."""
    parser = expat.ParserCreate()
    top = Element("", {}, path)
    stack = [top]

    def place() -> str:
        return f"{path}, line {parser.CurrentLineNumber}"

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag.rpartition(":")[2], attributes, place())
        stack[-1].children.append(element)
        stack.append(element)

    def end(tag: str) -> None:
        stack.pop()

    def characters(data: str) -> None:
        stack[-1].text += data

    def entity(name: str, *rest: object) -> None:
        # Entities can make a small file expand without end, and no network needs them.
        raise InvalidInput(
            f"{place()}: declares the entity {show_value(name)}; remove the declaration",
            code="bad-file",
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.EntityDeclHandler = entity
    parser.buffer_text = True
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InvalidInput(
            f"{path}, line {error.lineno}: not well-formed XML "
            f"({expat.errors.messages[error.code]}); repair the file",
            code="bad-file",
        ) from None
    return top.children[0]


class LocatedObject(dict[str, Any]):
    """A JSON object that remembers the line it starts on."""

    def __init__(self, pairs: list[tuple[str, Any]], line: int) -> None:
        super().__init__(pairs)
        self.line = line


def parse_json(path: Path) -> Any:
    """What the file holds, its objects as `LocatedObject`s."""
    text = read_text(path)
    lines = _lines_of_objects(text)
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: LocatedObject(pairs, next(lines)))
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{path}, line {error.lineno}: not valid JSON ({error.msg})", code="bad-file"
        ) from None
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidInput(
            f"{path}: holds a number that cannot be read ({error})", code="bad-file"
        ) from None


def _lines_of_objects(text: str) -> Iterator[int]:
    """The line on which each object opens, in the order in which they close, as JSON is read."""
    line, opened = 1, list[int]()
    for token in TOKENS.finditer(text):
        if token[0] == "\n":
            line += 1
        elif token[0] == "{":
            opened.append(line)
        elif token[0] == "}":
            yield opened.pop()
