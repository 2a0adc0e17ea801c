"""Print constraints that pin every dependency to the lowest version that pyproject.toml allows.

`pip install --constraint` of it gives the oldest supported environment, in which a job of
.github/workflows/tests.yml runs the tests.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9.]+)$")


def lower_bounds(project: dict[str, Any], extras: list[str]) -> dict[str, str]:
    """Name and lowest version of the dependencies, and of extras, which may name others."""
    optional: dict[str, list[str]] = project["project"]["optional-dependencies"]
    stated = list(project["tool"]["cg4ai"]["dependencies"])
    for extra in extras:
        stated += optional[extra]
    bounds: dict[str, str] = {}
    for text in stated:
        own = re.fullmatch(r"cg4ai\[(.*)\]", text)
        if own is not None:
            bounds |= lower_bounds(project, own[1].split(","))
            continue
        found = REQUIREMENT.match(text.partition(";")[0].strip())
        if found is None:
            raise ValueError(f"{text!r} states no lower bound; write NAME>=VERSION")
        bounds[found[1]] = found[2]
    return bounds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--extra", action="append", default=[], help="also bounds of this extra")
    options = parser.parse_args(arguments)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for name, version in sorted(lower_bounds(project, options.extra).items()):
        print(f"{name}=={version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
