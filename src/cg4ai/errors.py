"""Errors that users see: each says what came, what was expected and what to do."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import islice

# the parent of both distributions' errors, so that one `except` catches what either raises; the
# checker depends on nothing of this package
from cg4ai_checker.errors import Cg4aiError as Cg4aiError

__all__ = [
    "CODES",
    "Cg4aiError",
    "FitWarning",
    "InvalidInput",
    "InvalidSettings",
    "MissingAnchor",
    "MissingExtra",
    "MissingFactory",
    "OutsideRegion",
    "RunFolderError",
    "SmallGroups",
    "SolverFailure",
    "TimeIsOver",
    "check_names",
    "did_you_mean",
]

# what `code` of an error may be, and what it means; a code names a fault, not the place of it
CODES = {
    "altered": "a file is not what was sealed, or belongs to another run",
    "anchor": "an anchor does not keep its rule, or none was found",
    "bad-file": "a file or folder is missing, unsafe, or not in its format",
    "bad-name": "a name cannot be stored or shown as it is",
    "conflict": "arguments, rules or settings contradict each other",
    "duplicate": "something is given twice",
    "empty": "nothing is given where something is needed",
    "error": "any other fault",
    "exists": "something would be overwritten, or is in use by another process",
    "infeasible": "no answer can keep what is asked for",
    "interrupted": "Ctrl-C came before there was anything to return",
    "invalid-input": "data, a rule or an argument does not fit",
    "invalid-settings": "one or more settings are unknown or out of range",
    "memory": "there is not enough memory, or a size is beyond its limit",
    "missing-argument": "an argument is needed here",
    "missing-extra": "an optional package is needed",
    "missing-factory": "code of the user's that made the members must be given again",
    "missing-values": "values are missing in data",
    "not-convex": "a function is not convex, or not concave, as it must be",
    "not-finite": "numbers are NaN, infinite or overflow",
    "not-proven": "a claim does not follow from what its certificate holds",
    "outside": "inputs lie outside the region or the set",
    "range": "a number is below or above its limits",
    "rejected": "a certificate could not be verified",
    "small-groups": "groups hold too few rows for the tolerance that is asked",
    "shape": "sizes or numbers of dimensions do not match",
    "solver-status": "a solver ended without an answer",
    "time-limit": "a time limit ended a step that cannot be cut short",
    "type": "a value is of a kind that is not accepted here",
    "unknown-name": "a name, label or choice is not known",
    "unreadable": "a certificate or a run folder cannot be read",
    "unsupported": "each part is valid, but they cannot be used together",
    "version": "a file is of a version that this one does not read",
}
MOST_COMPARED = 1000  # words: comparing with each takes time, and rows may have any number of names
NO_MEMORY = r"(n't|not|fail\w*|unable)( to)? allocat|not enough memory|out of memory"
LONGEST_NAME = 120  # two of them, and some words, are one line of a certificate


class InvalidInput(Cg4aiError, ValueError):
    """Data, a requirement or an argument does not fit; nothing has been trained or written."""

    code = "invalid-input"


class MissingFactory(InvalidInput):
    """Saved members are whole, but what no file holds, code of the user's, was not given again."""

    code = "missing-factory"


class MissingAnchor(InvalidInput):
    """No anchor is known to keep these rules, so that nothing can shield them.

    `rule` is the name of the one that forbids it, `point` an input where it does, if one is known.
    """

    code = "anchor"

    def __init__(self, *words: object, rule: str = "", point: Sequence[float] = ()) -> None:
        super().__init__(*words)
        self.rule, self.point = rule, tuple(point)


class InvalidSettings(Cg4aiError, ValueError):
    """One or more settings are unknown or out of range; the message lists all of them."""

    code = "invalid-settings"


class SolverFailure(Cg4aiError, RuntimeError):
    """A solver ended with a status from which no answer can be read; the message names it."""

    code = "solver-status"


class TimeIsOver(SolverFailure):
    """A time limit ended a step that nothing comes out of unless it is finished."""

    code = "time-limit"


class RunFolderError(Cg4aiError, OSError):
    """A run folder cannot be written, is not ours, or is damaged; the message names the file."""

    code = "bad-file"


class MissingExtra(Cg4aiError, ImportError):
    """An optional package is needed; the message names the extra to install."""

    code = "missing-extra"


class OutsideRegion(UserWarning):
    """Predictions were asked for where the rules of an ensemble are not guaranteed to hold."""


class FitWarning(UserWarning):
    """A fitted model is not all that was asked for; the message says what is amiss.

    A requirement is violated, a limit ended training early, or a constant predicts as well.
    """


class SmallGroups(FitWarning):
    """Groups hold too few rows for the tolerance of a rule on decisions to be kept on new ones."""

    code = "small-groups"


def refuse_incomplete(part: object, names: Iterable[str], base: str) -> None:
    """Refuse a part of another package that lacks attributes, before it is used."""
    absent = [name for name in names if not hasattr(part, name)]
    if absent:
        raise InvalidInput(
            f"{type(part).__name__} lacks {', '.join(absent)}: derive it from {base} and write "
            "what is missing",
            code="type",
        )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the closest of the first known words, or an empty string."""
    if len(word) > 100:  # nobody meant that, and the search takes the square of the length
        return ""
    close = difflib.get_close_matches(word, islice(known, MOST_COMPARED), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def check_names(names: Iterable[str], place: str, *, longest: int = LONGEST_NAME) -> None:
    """Refuse names that would not come back as they are; `place` says where they were read.

    Names stand in reports, certificates and the headers of tables, where spaces at their ends are
    lost, and characters that do not show let one name pass for another.
    """
    for name in names:
        hidden = next((one for one in name if not one.isprintable()), None)
        if hidden is not None:
            called = unicodedata.name(hidden, "a control character")
            raise InvalidInput(
                f"{place}: the name {name[:longest]!r} holds U+{ord(hidden):04X} ({called}), which "
                "does not show as what it is; replace it by an ordinary character",
                code="bad-name",
            )
        if name != name.strip():
            raise InvalidInput(
                f"{place}: the name {name[:longest]!r} begins or ends with a space; remove that",
                code="bad-name",
            )
        if len(name) > longest:
            raise InvalidInput(
                f"{place}: the name {name[:40]!r}... has {len(name)} characters, more than "
                f"{longest}; shorten it",
                code="bad-name",
            )


def out_of_memory(error: BaseException) -> bool:
    """Whether it says that memory was asked for in vain, as torch does by a RuntimeError."""
    if isinstance(error, RuntimeError):
        return re.search(NO_MEMORY, str(error)) is not None
    return isinstance(error, MemoryError)


def __dir__() -> list[str]:
    return __all__
