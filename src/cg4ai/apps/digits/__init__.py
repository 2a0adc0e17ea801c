"""Digits: classifiers of small networks that answer listed images right, four ways to use it."""

from cg4ai.apps.digits.data import Digits, Split, digits
from cg4ai.apps.digits.separation import PixelFlips, SmallestChange
from cg4ai.apps.digits.train import DigitsResult, train

__all__ = [
    "Digits",
    "DigitsResult",
    "PixelFlips",
    "SmallestChange",
    "Split",
    "digits",
    "train",
]
