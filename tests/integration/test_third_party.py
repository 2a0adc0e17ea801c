"""A rule, a kind of member, a pricer and a separator in a package of their own, by the docs.

The code of CONTRIBUTING.md becomes an installed package outside of the repository, and the scripts
of `tests/third_party` use it there as anybody would.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "extras_of_cg4ai"
SCRIPTS = ROOT / "tests" / "third_party"
PUBLIC = {"cg4ai", "cg4ai.colgen", "cg4ai.errors", "cg4ai.members", "cg4ai.rules"}
DEFINED = {"rule": "Budget", "member": "Waves", "pricer": "RidgePricer", "separator": "Grid"}


def modules() -> dict[str, str]:
    """The complete examples of the page, by what they define."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return {
        name: next(block for block in found if f"class {kind}(" in block)
        for name, kind in DEFINED.items()
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages in which that of the docs is installed."""
    folder = tmp_path_factory.mktemp("site")
    package = folder / PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    for name, code in modules().items():
        (package / f"{name}.py").write_text(code, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", DEFINED)
def test_what_the_docs_say_is_enough_for_a_package_elsewhere(name: str, site: Path) -> None:
    script = site / f"use_{name}.py"
    script.write_text((SCRIPTS / script.name).read_text(encoding="utf-8"), encoding="utf-8")
    known = [Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    path = [str(site), *(str(one.resolve()) for one in known if one.name == "src")]
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:extras_of_cg4ai", str(script)],
        cwd=site,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{name}: ")


@pytest.mark.parametrize("name", DEFINED)
def test_only_public_names_are_imported(name: str) -> None:
    for code in (modules()[name], (SCRIPTS / f"use_{name}.py").read_text(encoding="utf-8")):
        imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
        own = {str(node.module) for node in imports if str(node.module).startswith("cg4ai")}
        assert own <= PUBLIC
