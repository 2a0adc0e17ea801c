"""`Monotone` and `Curvature`: how outputs move with a feature, kept by how members are built.

A mixture of functions that rise with a feature rises with it, and one of convex functions is
convex: a shape that every member keeps at every input, their mixture keeps, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import Array, IntArray
from cg4ai.rules.requirement import RequirementDefaults
from cg4ai.rules.rows import Rows


@dataclass(frozen=True, eq=False)
class Shape(RequirementDefaults):
    """What both shapes share: the features, each +1 or -1, and of which outputs it is asked.

    `features` names columns by position, or by name where the data have names; or it lists +1, -1
    or 0 for each column of the data, as LightGBM's `monotone_constraints` do. `output` is the
    position of one output, None is all of them. With `logits` the outputs are logits of classes,
    of which only differences mean anything.
    """

    features: Any
    output: Any = None
    name: str = field(default="", kw_only=True)
    listed: int | None = field(default=None, kw_only=True, repr=False)  # columns there must be
    logits: bool = field(default=False, kw_only=True)
    output_size: int | None = field(default=None, init=False, repr=False)

    words: ClassVar[tuple[str, str]]  # for +1 and -1
    slack: ClassVar[str] = "row"
    region: ClassVar[None] = None
    separator: ClassVar[None] = None
    inputs: ClassVar[None] = None
    ordered: ClassVar[bool] = False

    def __post_init__(self) -> None:
        kind, given = type(self).__name__, self.features
        if isinstance(self.features, list | tuple | np.ndarray):
            self._read_list(np.asarray(self.features))
        if not isinstance(self.features, Mapping) or not self.features:
            raise InvalidInput(
                f"{kind} needs {{feature: +1 or -1}}, or +1, -1 or 0 for each column with one that "
                f"is not 0, got {given!r:.80}",
                code="type",
            )
        for feature, sign in self.features.items():
            if isinstance(sign, bool) or sign not in (1, -1):
                raise InvalidInput(
                    f"{kind} gives feature {feature!r} the sign {sign!r}; use +1 "
                    f"({self.words[0]}) or -1 ({self.words[1]})",
                    code="range",
                )
            if not isinstance(feature, str) and not _is_position(feature):
                raise InvalidInput(
                    f"{kind} names features by position or by column name, got {feature!r}",
                    code="type",
                )
        if not isinstance(self.name, str):
            raise InvalidInput(
                f"the name of a requirement must be text, got {self.name!r}", code="type"
            )
        if not (self.output is None or isinstance(self.output, str) or _is_position(self.output)):
            raise InvalidInput(
                f"{kind} names its output by position or by name, got {self.output!r}", code="type"
            )
        signs = {str(feature): int(sign) for feature, sign in self.features.items()}
        said = ", ".join(f"{feature}: {sign:+d}" for feature, sign in signs.items())
        object.__setattr__(self, "name", self.name or f"{kind}({said})")

    def _read_list(self, signs: Array) -> None:
        """One sign for each column, by position."""
        if signs.ndim != 1 or not np.isin(signs, (-1, 0, 1)).all():
            raise InvalidInput(
                f"{type(self).__name__} takes a list of +1, -1 or 0, one for each column, got "
                f"{self.features!r:.80}",
                code="range",
            )
        known = {int(place): int(signs[place]) for place in np.flatnonzero(signs)}
        object.__setattr__(self, "listed", len(signs))
        object.__setattr__(self, "features", known)

    def check_list(self, input_size: int) -> None:
        """Refuse a list of signs that is not one for each column."""
        if self.listed is not None and self.listed != input_size:
            raise InvalidInput(
                f"{self.name} lists {self.listed} signs for {input_size} features; give one for "
                "each, 0 where nothing is asked",
                code="shape",
            )

    @property
    def input_size(self) -> int:
        raise InvalidInput(f"{self.name} holds at every input and lists none", code="unsupported")

    def resolve_names(self, features: Sequence[str], outputs: Sequence[str] | None = ()) -> Self:
        """The same by positions, where columns and outputs have these names (None: as it is)."""
        taken: dict[Any, int] = {}
        for feature, sign in self.features.items():
            position = _position(feature, features, f"{self.name} names the feature", "column")
            if taken.setdefault(position, sign) != sign:
                raise InvalidInput(
                    f"{self.name} names feature {feature!r} twice, with both signs",
                    code="duplicate",
                )
        output = self.output
        if isinstance(output, str) and outputs is not None:
            output = _position(output, outputs, f"{self.name} names the output", "output")
        return replace(self, features=taken, output=output)

    def check(self, input_size: int, output_size: int) -> None:
        """Refuse features or outputs that a predictor of these sizes does not have."""
        self.check_list(input_size)
        for feature in self.features:
            if isinstance(feature, str):
                raise InvalidInput(
                    f"{self.name} names the feature {feature!r}, but the data have no column "
                    "names; give its position, or a DataFrame",
                    code="unsupported",
                )
            if feature >= input_size:
                raise InvalidInput(
                    f"{self.name} names feature {feature}; there are {input_size}, from 0",
                    code="range",
                )
        if isinstance(self.output, str):
            raise InvalidInput(
                f"{self.name} names the output {self.output!r}, but outputs have no names here; "
                "give its position",
                code="unknown-name",
            )
        if self.output is not None and self.output >= output_size:
            raise InvalidInput(
                f"{self.name} names output {self.output}; there are {output_size}, from 0",
                code="range",
            )
        object.__setattr__(self, "output_size", int(output_size))

    def directions(self, input_size: int) -> IntArray:
        """(d,): +1 or -1 for each feature that it is about, 0 for the others."""
        made = np.zeros(input_size, np.int64)
        for feature, sign in self.features.items():
            made[int(feature)] = int(sign)
        return made

    def functionals(self, output_size: int) -> IntArray:
        """(k, r) of -1, 0 and 1: the sums of outputs that have the shape."""
        if self.logits:
            return self.differences(output_size)
        if self.output is None:
            return np.eye(output_size, dtype=np.int64)
        return np.eye(output_size, dtype=np.int64)[[int(self.output)]]

    def differences(self, output_size: int) -> IntArray:
        """(k, r): differences of scores, one class minus another, that must have the shape.

        Under a softmax the probability of a class rises where its score rises against each other.
        """
        chosen = self._class(output_size)
        unit = np.eye(output_size, dtype=np.int64)
        return unit[[chosen]] - np.delete(unit, chosen, axis=0)

    def for_classes(self, count: int, *, logits: bool) -> Self:
        """The same about scores of classes: of two, the second is meant where none is named."""
        second = self.output is None and not self.ordered and count == 2
        return replace(self, output=1 if second else self.output, logits=logits)

    def _class(self, output_size: int) -> int:
        if self.output is not None:
            return int(self.output)
        raise InvalidInput(
            f"{self.name} does not say whose score it is about: there are {output_size} classes; "
            "give output=the position of one, or Monotone(..., ordered=True) for classes in order",
            code="missing-argument",
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all that it asks for."""
        content = (
            type(self).__name__,
            sorted((str(feature), int(sign)) for feature, sign in self.features.items()),
            self.output,
            self.ordered,
            self.logits,
        )
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def rows(self, number: int) -> Rows | None:
        return None

    def rows_at(self, inputs: Array, which: IntArray, number: int) -> Rows:
        raise InvalidInput(
            f"{self.name} has no rows: members keep it by construction", code="unsupported"
        )

    def violations(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        raise InvalidInput(
            f"{self.name} ties inputs together; audit it instead", code="unsupported"
        )

    def describe(self, rows: Rows, j: int) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Monotone(Shape):
    """Outputs rise (+1) or fall (-1) with each of these features, at every input.

    >>> Monotone({"income": +1, "debt": -1})
    >>> Monotone([1, 0, -1])

    In a classifier it is the probability, or logit, of class `output` (a position in `classes_`)
    that rises, of two classes the second unless said. With `ordered` classes are in order, and
    the chance of class k or a higher one rises for every k.
    """

    ordered: bool = field(default=False, kw_only=True)  # type: ignore[misc]

    words = ("rising", "falling")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ordered and self.output is not None:
            raise InvalidInput(
                f"{self.name} is about all classes in order, so it takes no output; leave out "
                "output or ordered",
                code="conflict",
            )

    def signs(self, input_size: int) -> IntArray:
        """(outputs, features) of -1, 0 and 1: how each output moves; `check` comes first."""
        if self.output_size is None:
            raise InvalidInput(f"{self.name} does not know the outputs yet; call check first")
        made = self.functionals(self.output_size)
        return np.asarray((made != 0).any(axis=0)[:, None] * self.directions(input_size))

    def functionals(self, output_size: int) -> IntArray:
        """(k, r): outputs, or with `ordered` the sums of the last ones, P(class >= k)."""
        if self.ordered and not self.logits:
            return np.triu(np.ones((output_size, output_size), np.int64))[1:]
        return super().functionals(output_size)

    def differences(self, output_size: int) -> IntArray:
        """(k, r): with `ordered` those of neighbours, which order all probabilities."""
        if not self.ordered:
            return super().differences(output_size)
        unit = np.eye(output_size, dtype=np.int64)
        return unit[1:] - unit[:-1]


@dataclass(frozen=True, eq=False)
class Curvature(Shape):
    """Outputs are convex (+1) or concave (-1) in each of these features, at every input.

    >>> Curvature({"price": -1})

    Convex in several features means in all of them together. Probabilities have no curvature that
    a softmax would keep: in a classifier it is for scores="logit".
    """

    words = ("convex", "concave")


def _is_position(value: Any) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and bool(value >= 0)


def _position(value: Any, names: Sequence[str], said: str, what: str) -> int:
    if not isinstance(value, str):
        return int(value)
    if not names and what == "column":
        raise InvalidInput(
            f"{said} {value!r}, but X is an array, whose columns have no names: give a DataFrame, "
            "or the position of the column",
            code="unknown-name",
        )
    if value not in names:
        hint = did_you_mean(value, names)
        shown = ", ".join(list(names)[:10]) or "none"
        raise InvalidInput(
            f"{said} {value!r}, which is no {what}{hint}; there are: {shown}", code="unknown-name"
        )
    return list(names).index(value)
