"""Builds cg4ai with the checker of this repository inside it, where its folder is there.

From an index, the checker is a distribution of its own that cg4ai depends on.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

CHECKER = Path("checker/src")

packages = find_packages("src")
places = {"": "src"}
if CHECKER.exists():
    packages += find_packages(str(CHECKER))
    places["cg4ai_checker"] = str(CHECKER / "cg4ai_checker")

setup(packages=packages, package_dir=places)
