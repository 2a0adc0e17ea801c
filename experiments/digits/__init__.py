"""The paper's second application: digit classifiers that answer listed images right.

An application outside the package: it registers itself, and its command line is made from parts of
the package's. experiments/digits/README.md has its use, and the paper's experiments.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cg4ai.apps import register

if TYPE_CHECKING:
    from experiments.digits.app import train
    from experiments.digits.data import Digits, Split, digits
    from experiments.digits.evaluate import exact_radius
    from experiments.digits.separation import PixelFlips, SmallestChange
    from experiments.digits.settings import DigitsSettings

# where each name lives; imported when asked for, so that the settings are read in no time
_HOMES = {
    "Digits": "data",
    "DigitsSettings": "settings",
    "PixelFlips": "separation",
    "SmallestChange": "separation",
    "Split": "data",
    "digits": "data",
    "exact_radius": "evaluate",
    "train": "app",
}

__all__ = [
    "Digits",
    "DigitsSettings",
    "PixelFlips",
    "SmallestChange",
    "Split",
    "digits",
    "exact_radius",
    "train",
]

NAME = "digits"  # which run folders and ensembles state, as they did before it left the package
PROGRAM = "python -m experiments.digits"


def _application() -> Any:
    from experiments.digits.app import APPLICATION

    return APPLICATION


register(NAME, kind=NAME, load=_application, program=PROGRAM, train=f"{PROGRAM} train")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"experiments.digits.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'experiments.digits' has no attribute {name!r}")
