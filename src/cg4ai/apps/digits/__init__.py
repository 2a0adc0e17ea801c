"""Digits: classifiers of small networks that answer listed images right, four ways to use it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cg4ai.apps.digits.app import train
    from cg4ai.apps.digits.data import Digits, Split, digits
    from cg4ai.apps.digits.evaluate import exact_radius
    from cg4ai.apps.digits.separation import PixelFlips, SmallestChange
    from cg4ai.apps.digits.settings import DigitsSettings

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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"cg4ai.apps.digits.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'cg4ai.apps.digits' has no attribute {name!r}")
