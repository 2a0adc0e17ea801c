"""Baselines to compare with: other ways to learn under rules, on the same networks and data."""

from experiments.baselines.choice import Candidate, Choice, tuned
from experiments.baselines.compare import METHODS, ComparisonRow, compare, comparison_markdown
from experiments.baselines.records import (
    BaselineData,
    BaselineResult,
    BaselineSettings,
    Method,
    paper_settings,
)

__all__ = [
    "METHODS",
    "BaselineData",
    "BaselineResult",
    "BaselineSettings",
    "Candidate",
    "Choice",
    "ComparisonRow",
    "Method",
    "compare",
    "comparison_markdown",
    "paper_settings",
    "tuned",
]
