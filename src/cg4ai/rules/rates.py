"""`Rate` and `DecisionRate`: rules on mean scores, and on decisions, of groups of listed inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import Array
from cg4ai.rules.regions import column_names
from cg4ai.rules.requirement import as_class_labels, find_position
from cg4ai.rules.rows import LinearRows, Rows
from cg4ai.rules.sums import MultiInputRule

# what a decision rate is of: whose decisions are counted, by whether the label is the class asked
OF: dict[str, tuple[bool | None, ...]] = {
    "selection": (None,),
    "true positive": (True,),
    "false positive": (False,),
    "equalised odds": (True, False),
}
ALIASES = {
    "demographic parity": "selection",
    "equal opportunity": "true positive",
    "equalized odds": "equalised odds",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """The inputs (m,) bool that one rate is the mean over, and who they are."""

    group: Any
    inputs: NDArray[np.bool_]
    condition: str = ""

    @property
    def count(self) -> int:
        return int(self.inputs.sum())

    @property
    def shares(self) -> Array:
        return np.asarray(self.inputs / self.count)


@dataclass(frozen=True, slots=True)
class _Rule:
    """`weights . scores >= bound` over all inputs, with its description."""

    weights: Array
    bound: float
    text: str


@dataclass(frozen=True, eq=False)
class GroupRates(MultiInputRule):
    """What the two rules share: rates of groups, their differences and their ends."""

    groups: Any = None
    output: Any = field(default=1, kw_only=True)
    tolerance: float | None = field(default=None, kw_only=True)
    between: tuple[Any, Any] | None = field(default=None, kw_only=True)
    margin: float | str = field(default="auto", kw_only=True)

    ends: ClassVar[tuple[str, str]]
    score: ClassVar[str]
    possible: ClassVar[tuple[float, float]] = (-np.inf, np.inf)  # what a rate can be
    errors: ClassVar[float] = 1.0  # standard errors that the margin "auto" is
    chance: ClassVar[float] = 0.0  # standard errors below which no margin brings a tolerance

    def __post_init__(self) -> None:
        super().__post_init__()
        count = len(self.points)
        given = np.zeros(count, np.int64) if self.groups is None else _names(self.groups, count)
        object.__setattr__(self, "groups", given)
        for what in ("tolerance", *self.ends):
            self._one_number(what)
        if self.margin != "auto":
            self._one_number("margin")
        if isinstance(self.margin, float) and self.margin < 0:
            raise InvalidInput(
                f'margin must be "auto" or a number >= 0, got {self.margin}', code="range"
            )
        self._refuse_bounds()

    def _one_number(self, what: str) -> None:
        value = getattr(self, what)
        if value is not None:
            number = arrays.as_numbers(value, what)
            if number.ndim != 0:
                raise InvalidInput(
                    f"{what} must be one number, got shape {number.shape}", code="shape"
                )
            object.__setattr__(self, what, float(number))

    @property
    def low(self) -> float | None:
        return getattr(self, self.ends[0])  # type: ignore[no-any-return]

    @property
    def high(self) -> float | None:
        return getattr(self, self.ends[1])  # type: ignore[no-any-return]

    def _refuse_bounds(self) -> None:
        if self.tolerance is None and self.low is None and self.high is None:
            raise InvalidInput(
                f"{self.name} asks for nothing; give tolerance, {' or '.join(self.ends)}",
                code="missing-argument",
            )
        if self.low is not None and self.high is not None and self.low > self.high:
            raise InvalidInput(
                f"{self.name} contradicts itself: {self.ends[0]} {self.low} > "
                f"{self.ends[1]} {self.high}",
                code="infeasible",
            )
        if self.between is not None and self.tolerance is None:
            raise InvalidInput(
                "between names two groups to compare; give their tolerance too",
                code="missing-argument",
            )
        if self.tolerance is None:
            return
        known = self.names
        if self.tolerance < 0:
            raise InvalidInput(f"tolerance must be >= 0, got {self.tolerance}", code="range")
        if len(known) < 2:
            raise InvalidInput(
                f"tolerance compares groups, but there is only {known}", code="unsupported"
            )
        if self.between is not None and (
            len(self.between) != 2
            or self.between[0] == self.between[1]
            or not set(self.between) <= set(known)
        ):
            raise InvalidInput(
                f"between must name two different groups of {known}, got {self.between!r}",
                code="range",
            )

    @property
    def names(self) -> list[Any]:
        """The groups, sorted."""
        return list(np.unique(self.groups).tolist())

    def cells(self) -> list[Cell]:
        """What rates are means over: here the groups."""
        return [Cell(name, np.asarray(self.groups == name)) for name in self.names]

    def pair_cells(self) -> list[tuple[Cell, Cell]]:
        """Pairs of groups that the tolerance speaks of, under the same condition."""
        found = []
        for a, b in combinations(self.cells(), 2):
            named = self.between is None or {a.group, b.group} == set(self.between)
            if a.condition == b.condition and named:
                found.append(
                    (a, b) if self.between is None or a.group == self.between[0] else (b, a)
                )
        return found

    def _rules(self) -> list[_Rule]:
        rules = []
        score = self.score.format(self.column)
        if self.tolerance is not None:
            for a, b in self.pair_cells():
                gap = a.shares - b.shares
                text = f"{score}, group {a.group!r} minus group {b.group!r}{a.condition}"
                rules.append(_Rule(gap, -self.tolerance, f"{text} >= {-self.tolerance:.6g}"))
                rules.append(_Rule(-gap, -self.tolerance, f"{text} <= {self.tolerance:.6g}"))
        for cell in self.cells():
            whom = f"group {cell.group!r}" if len(self.names) > 1 else "all inputs"
            whom += cell.condition
            if self.low is not None:
                rules.append(_Rule(cell.shares, self.low, f"{score}, {whom} >= {self.low:.6g}"))
            if self.high is not None:
                rules.append(_Rule(-cell.shares, -self.high, f"{score}, {whom} <= {self.high:.6g}"))
        return rules

    def rows(self, number: int) -> LinearRows:
        rules = self._rules()
        mixing = np.stack([rule.weights for rule in rules])
        bounds = np.array([rule.bound for rule in rules])
        origin = np.stack([np.full(len(rules), -1), np.arange(len(rules))], axis=1)
        return self._rows(number, mixing, bounds, origin)

    def describe(self, rows: Rows, j: int) -> str:
        rule = j if rows.origin is None else int(rows.origin[j, 1])
        return f"{self.name}: {self._rules()[rule].text}"

    def restrict_to(self, kept: NDArray[np.bool_]) -> Self | None:
        """The same rule at some of its inputs (m,) bool; None where a group would have none."""
        if any(not (cell.inputs & kept).any() for cell in self.cells()):
            return None
        return self._with(inputs=self.points[kept], **self._listed(kept))

    def _listed(self, kept: NDArray[np.bool_]) -> dict[str, Any]:
        return {"groups": self.groups[kept]}

    def with_tolerance(self, tolerance: float) -> Self:
        """The same rule, more or less strict between groups; without margin."""
        return self._with(tolerance=tolerance, margin=0.0)

    def _with(self, **changes: Any) -> Self:
        made = replace(self, **changes)
        object.__setattr__(made, "output_size", self.output_size)
        return made

    def tighten(self, spread: float) -> Self:
        """The rule to train by: stricter by its margin, so that it holds at new inputs as well.

        "auto" is `errors` standard errors of what is bound, for scores whose standard deviation is
        `spread`, but at most half of the tolerance, or of the room between the ends. Of decisions
        none leaves less than half an error: closer is chance, and costs accuracy.
        """
        changes: dict[str, Any] = {"margin": 0.0}
        if self.tolerance is not None:
            error = self.compute_error_of_gaps(spread)
            most = min(self.tolerance / 2, max(0.0, self.tolerance - self.chance * error))
            changes["tolerance"] = self.tolerance - self._margin(error, most)
        error = max(spread / np.sqrt(cell.count) for cell in self.cells())
        least, largest = self.possible
        low, high = self.low, self.high
        room = (largest if high is None else high) - (least if low is None else low)
        margin = self._margin(error, room / 2)
        if self.low is not None:
            changes[self.ends[0]] = max(self.low + margin, least)
        if self.high is not None:
            changes[self.ends[1]] = min(self.high - margin, largest)
        return self._with(**changes)

    def compute_error_of_gaps(self, spread: float) -> float:
        """The largest standard error of a difference of two groups, for scores of this spread."""
        return max(
            float(np.hypot(*(spread / np.sqrt(cell.count) for cell in pair)))
            for pair in self.pair_cells()
        )

    def _margin(self, error: float, most: float) -> float:
        wanted = self.errors * error if isinstance(self.margin, str) else self.margin
        return float(min(wanted, most))


@dataclass(frozen=True, eq=False)
class Rate(GroupRates):
    """The mean of output `output` over each group; every row sums over many inputs.

    `groups` (m,) names the group of each input (numbers or text); None is one group of all.
    `tolerance`: means of two groups differ by at most this, for the pair `between` or for all
    pairs. `mean_at_least`, `mean_at_most`: a budget for the mean of each group. `margin` makes the
    rule stricter while training, so that it holds on new inputs, too: a number, or "auto", one
    standard error by the sizes of the groups. The rows bind mean scores; for decisions see
    `DecisionRate`.
    """

    mean_at_least: float | None = field(default=None, kw_only=True)
    mean_at_most: float | None = field(default=None, kw_only=True)

    ends = ("mean_at_least", "mean_at_most")
    score = "mean of output {}"

    @classmethod
    def budget(
        cls,
        inputs: Any,
        groups: Any = None,
        *,
        mean_at_least: float | None = None,
        mean_at_most: float | None = None,
        output: Any = 1,
    ) -> Rate:
        """The mean score, of all inputs or of each group, stays within the two ends."""
        return cls(
            inputs, groups, output=output, mean_at_least=mean_at_least, mean_at_most=mean_at_most
        )

    def decision_rates(self, outputs: Array, threshold: float = 0.5) -> dict[Any, float]:
        """Share of each group whose score reaches `threshold`; `outputs` (m, r) at the inputs."""
        decided = np.asarray(outputs)[:, self.column] >= threshold
        return {name: float(decided[self.groups == name].mean()) for name in self.names}


@dataclass(frozen=True, eq=False)
class DecisionRate(GroupRates):
    """How often each group is decided for class `output`; for classifiers.

    Of two classes `output` is the second unless said, of more it must be said.

    `of` says among whom: "selection" (all; also "demographic parity"), "true positive" (those
    whose label is that class; "equal opportunity"), "false positive" (the others) or "equalised
    odds" (both). All but the first need `labels` (m,), the classes of the inputs, numbers or names.
    `tolerance`: rates of two groups differ by at most this, for the pair `between` or all pairs.
    `at_least`, `at_most`: bounds on the rate of each group.

    The listed inputs stand for new ones: rates are bound where models were not trained, by
    cross-fitting, as well as at the listed inputs. `margin` makes the rule stricter while decisions
    are chosen, by at most half of the tolerance: a number, or "auto", 1.645 standard errors of a
    gap between groups of these sizes, to no less than half of one. Where one
    error exceeds the tolerance, `fit` warns (`cg4ai.errors.SmallGroups`).

    `groups` are needed in training only; decisions then use what the features tell of them. With
    `group_feature`, the column of the inputs (name or position) that holds the group, decisions use
    the group itself: each has a threshold of its own. `groups` may then be left out.

    There is one decision per input, by a threshold on few scores (`cg4ai.ensemble.decision_rule`).
    All other rules bind the scores of the mixture.
    """

    output: Any = field(default=None, kw_only=True)
    of: str = field(default="selection", kw_only=True)
    labels: Any = field(default=None, kw_only=True)
    at_least: float | None = field(default=None, kw_only=True)
    at_most: float | None = field(default=None, kw_only=True)
    group_feature: Any = field(default=None, kw_only=True)

    ends = ("at_least", "at_most")
    possible = (0.0, 1.0)
    errors = 1.645
    chance = 0.5
    score = "decisions for class {}"

    def __post_init__(self) -> None:
        known = {**{name: name for name in OF}, **ALIASES}
        if self.of not in known:
            raise InvalidInput(
                f"of must be one of {', '.join(known)}, got {self.of!r}"
                f"{did_you_mean(str(self.of), known)}",
                code="unknown-name",
            )
        object.__setattr__(self, "of", known[self.of])
        if self.labels is not None:
            labels = as_class_labels(self.labels, len(np.asarray(self.inputs)))
            object.__setattr__(self, "labels", labels)
        elif self.of != "selection":
            raise InvalidInput(
                f"the {self.of} rate needs labels, the class of each input", code="missing-argument"
            )
        self._find_group_feature()
        super().__post_init__()
        for what in self.ends:
            value = getattr(self, what)
            if value is not None and not 0 <= value <= 1:
                raise InvalidInput(
                    f"{what} is a share and must lie in [0, 1], got {value}", code="range"
                )

    @property
    def column(self) -> int:
        return 1 if self.output is None else int(self.output)

    def _find_group_feature(self) -> None:
        """The position of the column that holds the group, and the groups if they are not given."""
        if self.group_feature is None:
            return
        names = column_names(self.inputs) or ()
        place = find_position(self.group_feature, names, "DecisionRate", "group_feature")
        table = self.inputs if hasattr(self.inputs, "iloc") else np.asarray(self.inputs)
        width = table.shape[1] if np.ndim(table) == 2 else 0
        if place >= width:
            raise InvalidInput(
                f"group_feature is column {place}, counted from 0, of {width}", code="range"
            )
        object.__setattr__(self, "group_feature", place)
        if self.groups is None:
            column = table.iloc[:, place] if hasattr(table, "iloc") else table[:, place]
            object.__setattr__(self, "groups", np.asarray(column))

    def _positions(self, outputs: Sequence[str]) -> dict[str, Any]:
        found = super()._positions(outputs)
        if self.labels is not None and self.labels.dtype.kind == "U":
            places = {
                one: find_position(one, outputs, self.name, "class")
                for one in np.unique(self.labels).tolist()
            }
            found["labels"] = np.array([places[one] for one in self.labels.tolist()], np.int64)
        return found

    def check(self, input_size: int, output_size: int) -> None:
        super().check(input_size, output_size)
        if self.labels is not None and self.labels.dtype.kind == "U":
            raise InvalidInput(
                f"{self.name} names the class {str(self.labels[0])!r}; only a classifier knows "
                "names, elsewhere give class numbers 0, 1, ...",
                code="unsupported",
            )
        if output_size < 2:
            raise InvalidInput(
                f"{self.name} is about decisions between classes, but the predictor has "
                f"{output_size} output; for numbers use Rate",
                code="unsupported",
            )
        if self.output is None and output_size > 2:
            raise InvalidInput(
                f"{self.name} does not say for which of {output_size} classes decisions are "
                "counted; give output=, its position or its label as text",
                code="missing-argument",
            )
        for cell in self.cells():
            if not cell.count:
                raise InvalidInput(
                    f"{self.name}: group {cell.group!r} has no inputs{cell.condition}, so that "
                    "there is no such rate; leave the group out or join it with another",
                    code="empty",
                )

    def cells(self) -> list[Cell]:
        found = []
        for positive in OF[self.of]:
            for cell in super().cells():
                if positive is None:
                    found.append(cell)
                    continue
                among = (self.labels == self.column) == positive
                told = f" whose label is {'' if positive else 'not '}{self.column}"
                found.append(Cell(cell.group, cell.inputs & among, told))
        return found

    def _listed(self, kept: NDArray[np.bool_]) -> dict[str, Any]:
        labels = None if self.labels is None else self.labels[kept]
        return {**super()._listed(kept), "labels": labels}


def _names(groups: Any, count: int) -> NDArray[Any]:
    """(count,) group names: whole numbers or text, nothing missing."""
    plain = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    if plain.shape != (count,):
        raise InvalidInput(
            f"groups must name one group for each of {count} inputs, got shape {plain.shape}",
            code="shape",
        )
    if plain.dtype == object:
        odd = [entry for entry in plain if not isinstance(entry, str | int | np.integer)]
        if odd:
            raise InvalidInput(f"groups must be whole numbers or text, got {odd[0]!r}", code="type")
        text = any(isinstance(entry, str) for entry in plain)
        plain = plain.astype(str if text else np.int64)
    if plain.dtype.kind == "f":
        plain = arrays.as_labels(plain, "groups", count)
    if plain.dtype.kind not in "iubU":
        raise InvalidInput(
            f"groups must be whole numbers or text, got dtype {plain.dtype}", code="type"
        )
    return np.array(plain)
