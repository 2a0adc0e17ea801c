"""What is asked of a fit, before anything is trained: its rules, and whether the data can teach."""

from __future__ import annotations

from typing import Any

from cg4ai.errors import InvalidInput
from cg4ai.estimators.parameters import FEWEST_ROWS
from cg4ai.rules import Requirement

FEWEST_TO_LEARN = 5  # rows: with fewer it is said that nothing is learnt


def choose_requirements(parameter: Any, given: Any) -> list[Requirement]:
    """Those given to `fit`, or those of the parameter; both at once are refused."""
    if parameter is not None and given is not None:
        raise InvalidInput(
            "requirements are given to fit and as a parameter of the estimator: which shall hold? "
            "Leave out one of the two, or join the lists",
            code="conflict",
        )
    chosen = parameter if given is None else given
    return check_requirements(() if chosen is None else chosen)


def check_requirements(requirements: Any) -> list[Requirement]:
    """The requirements as a list; anything else is refused with what to do."""
    if callable(getattr(requirements, "check", None)):
        raise InvalidInput(
            "requirements must be a list: write requirements=[requirement]", code="type"
        )
    if not isinstance(requirements, (list, tuple)):
        raise InvalidInput(
            f"requirements must be a list of requirements, got {type(requirements).__name__}; "
            "if these are weights of the rows, write sample_weight=...",
            code="type",
        )
    for requirement in requirements:
        if not callable(getattr(requirement, "check", None)):
            raise InvalidInput(
                f"requirements must hold Probability, Margin, Linear, Rate and the like, got "
                f"{type(requirement).__name__}",
                code="type",
            )
    return list(requirements)


def find_shortcomings(count: int, classes: Any) -> list[str]:
    """What data cannot teach: classes that are not there, anything by very few rows."""
    found = []
    if classes is not None and len(classes) == 1:
        found.append(
            f"y holds a single class, {classes.tolist()[0]!r}, so that there is nothing to tell "
            "apart and every prediction is this class; look at how y was made"
        )
    if count < FEWEST_TO_LEARN:
        rows = "one row is" if count == 1 else f"{count} rows are"
        found.append(
            f"{rows} too few to learn from: none is held out, and the score says nothing about new "
            f"rows; give {FEWEST_ROWS} or more"
        )
    return found
