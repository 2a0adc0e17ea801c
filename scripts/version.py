"""Print the version of this release, which both distributions and the citation must state alike."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STATED = {
    "src/cg4ai/__init__.py": r'^__version__ = "(.+)"$',
    "checker/src/cg4ai_checker/__init__.py": r'^__version__ = "(.+)"$',
    "pyproject.toml": r'^checker = "(.+?)"',
    "CITATION.cff": r"^version: (.+)$",
}


def stated() -> dict[str, str]:
    """For each file the version that it states."""
    found = {}
    for name, pattern in STATED.items():
        matched = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        if matched is None:
            sys.exit(f"{name} states no version")
        found[name] = matched[1]
    return found


if __name__ == "__main__":
    versions = stated()
    if len(set(versions.values())) > 1:
        sys.exit(f"versions differ: {versions}")
    print(next(iter(versions.values())))
