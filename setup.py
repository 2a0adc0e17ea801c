"""Builds cg4ai: a clone contains the checker, an sdist requires it as `cg4ai-checker`.

So `pip install .` and `pip install git+...` work before anything is on an index, and the wheels on
an index, which are built from the sdist, share no file with those of the checker.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

CHECKER = Path("checker")

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
requirements = list(project["tool"]["cg4ai"]["dependencies"])
packages, places = find_packages("src"), {"": "src"}
scripts = ["cg4ai = cg4ai.cli.main:main"]
package_data = {"cg4ai": ["py.typed"], "cg4ai.pages": ["*.css", "*.html", "*.js"]}

if (CHECKER / "src").exists():
    packages += find_packages(str(CHECKER / "src"))
    places["cg4ai_checker"] = str(CHECKER / "src" / "cg4ai_checker")
    package_data["cg4ai_checker"] = ["py.typed"]
    scripts.append("cg4ai-check = cg4ai_checker.command:main")
else:
    requirements.append(f"cg4ai-checker=={project['tool']['cg4ai']['checker']}")

setup(
    packages=packages,
    package_dir=places,
    package_data=package_data,
    include_package_data=False,
    install_requires=requirements,
    entry_points={"console_scripts": scripts},
)
