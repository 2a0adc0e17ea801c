"""The documentation is true: its snippets run, print what is shown, and its names exist."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import cg4ai
from cg4ai.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]
STUDIES = sorted((ROOT / "experiments").rglob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOTTED = re.compile(r"(?<![\w./-])((?:cg4ai|experiments)(?:\.[A-Za-z_]\w*)+)")
COMMAND = re.compile(r"^(?:cg4ai |make |python -m experiments\.).*")
FILE = re.compile(r"(?<![\w.*-])([a-z_]+(?:/[a-z_]+)*\.py)\b")
SHORT = re.compile(r"README|tutorial-")  # pages that run in a few seconds
LINK = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """Language, text and first line number of every fenced block."""
    text = page.read_text(encoding="utf-8")
    return [
        (found[1], found[2], text.count("\n", 0, found.start(2)) + 1)
        for found in BLOCK.finditer(text)
    ]


def shown(pattern: str) -> re.Pattern[str]:
    """Expected output, in which `...` stands for anything within a line."""
    parts = [re.escape(part) for part in pattern.strip().split("...")]
    return re.compile("[^\n]*".join(parts))


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(block[0] == language for block in blocks(page))]


def _snippets() -> list[Any]:
    """README's and the short tutorials' in every run of the tests, the others' with the guards."""
    later = (pytest.mark.slow, pytest.mark.guard)
    return [
        pytest.param(page, id=page.name, marks=() if SHORT.match(page.name) else later)
        for page in pages_with("python")
    ]


def output_of(command: str) -> str:
    """What a command of a tutorial prints, run in this process; it must succeed."""
    words = shlex.split(command, comments=True)
    assert words[0] == "cg4ai", f"tutorials run commands of cg4ai alone, not {command}"
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        assert main(words[1:]) == 0, command
    return stream.getvalue()


@pytest.mark.parametrize("page", _snippets())
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python blocks of a page run in order in one namespace; a `text` block is their output.

    Of tutorials commands run as well: those of `sh` blocks.
    """
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "snippets"}
    try:
        _run_snippets(page, namespace)
    finally:  # a server of a page that failed half-way
        for value in namespace.values():
            if isinstance(value, subprocess.Popen) and value.poll() is None:
                value.kill()
                value.communicate()


def _run_snippets(page: Path, namespace: dict[str, object]) -> None:
    printed = ""
    for language, text, line in blocks(page):
        if language == "python":
            # blank lines put the snippet on its own lines of the page in tracebacks
            code = compile("\n" * (line - 1) + text, str(page), "exec", dont_inherit=True)
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(code, namespace)
            printed = stream.getvalue()
        elif language == "sh" and page.name.startswith("tutorial-"):
            printed = "".join(map(output_of, text.replace("\\\n", " ").splitlines()))
        elif language == "text":
            assert shown(text).search(printed), f"{page.name}:{line} shows\n{text}got\n{printed}"


@pytest.mark.parametrize(
    "page", [*PAGES, *STUDIES], ids=lambda page: f"{page.parent.name}-{page.name}"
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_settings_of_the_guide_exist_with_their_defaults() -> None:
    """The guide lists those worth changing; the reference is made of all."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    table = text.partition("## Settings")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE))
    defaults = {
        field.name: repr(field.default).replace("'", '"') for field in fields(cg4ai.Settings)
    }
    assert len(documented) > 5
    assert documented == {name: defaults[name] for name in documented}


def test_every_stop_reason_is_explained() -> None:
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    assert [reason.name for reason in cg4ai.StopReason if f"`{reason.name}`" not in text] == []


def resolved(name: str) -> bool:
    """Whether a dotted name is a module, or something that a module has."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        module = ".".join(parts[:cut])
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            continue
        for attribute in parts[cut:]:
            if attribute in getattr(found, "__dataclass_fields__", {}):
                return True
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_dotted_name_exists(page: Path) -> None:
    names = sorted(set(DOTTED.findall(page.read_text(encoding="utf-8"))))
    assert [name for name in names if not resolved(name)] == []


def commands(page: Path) -> list[str]:
    """Commands in blocks and in the text, each on one line and without its comment."""
    text = page.read_text(encoding="utf-8")
    inline = re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
    lines = [
        line
        for language, block, _ in blocks(page)
        if language in ("", "sh")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [code.partition(" #")[0].strip() for code in (*inline, *lines) if COMMAND.match(code)]


@functools.cache
def help_of(command: tuple[str, ...]) -> str | None:
    """What `cg4ai X --help` or `python -m experiments.X --help` prints; None if it fails."""
    if command[0] == "python":
        return _help_of_program(command[1:])
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(io.StringIO()):
        code = main([*command[1:], "--help"])
    return stream.getvalue() if code == 0 else None


def _help_of_program(words: tuple[str, ...]) -> str | None:
    """Run in this process: a new one takes seconds to import what is imported here already."""
    stream = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patched,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore", RuntimeWarning)  # that a module was imported before
        patched.setattr(sys, "argv", [*words[1:], "--help"])
        try:
            if words[0] == "-m":
                runpy.run_module(words[1], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(str(ROOT / words[0]), run_name="__main__")
        except SystemExit as done:
            return None if done.code else stream.getvalue()
        except (ImportError, FileNotFoundError):
            return None
    return stream.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists_with_its_options(page: Path) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in commands(page):
        words = line.split()
        if words[0] == "make":
            assert len(words) == 1 or words[1] in targets, line
            continue
        # a program of the experiments may have commands of its own
        start = tuple(words[:4] if words[0] == "python" else words[:2])
        if start[-1].startswith("-"):
            start = start[:-1]
        help_text = help_of(start)
        assert help_text is not None, f"{page.name}: there is no command {line!r}"
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        unknown = [o for o in options if not re.search(rf"{o}(?![\w-])", help_text)]
        assert unknown == [], f"{page.name}: {line!r} has options that do not exist"


@pytest.mark.parametrize("folder", ["src", "experiments"])
def test_modules_that_are_named_exist(folder: str) -> None:
    """A comment that says "see cuts.py" leads somewhere."""
    known = [str(path) for path in (*ROOT.rglob("src/**/*.py"), *ROOT.rglob("experiments/**/*.py"))]
    for path in (ROOT / folder).rglob("*.py"):
        for name in FILE.findall(path.read_text(encoding="utf-8")):
            assert any(file.endswith(f"/{name}") for file in known), f"{path} names {name}"


def _walks() -> dict[str, list[str]]:
    """The files that each walk of the architecture names, in order."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    found = re.findall(r"<!-- walk: (\w+) -->(.*?)<!-- end -->", text, flags=re.S)
    return {name: re.findall(r"`([\w/]+\.py)`", walk) for name, walk in found}


@pytest.mark.parametrize(("name", "most"), [("routing", 33), ("fit", 33)])
def test_walks_name_each_file_once_and_go_downwards(name: str, most: int) -> None:
    files = _walks()[name]
    package = Path(cg4ai.__file__).parent
    assert 10 < len(files) <= most
    assert [file for file in files if not (package / file).is_file()] == []
    assert len(files) == len(set(files))
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layered,) = (one for one in contracts["contracts"] if one["type"] == "layers")
    level = {
        package.strip(): number
        for number, layer in enumerate(layered["layers"])
        for package in re.split(r"[|:]", layer)
    }
    levels = [level[file.split("/")[0].removesuffix(".py")] for file in files]
    assert levels == sorted(levels)
