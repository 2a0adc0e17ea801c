"""What all requirements share: where they hold, their name, their slack and their separator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import Array, IntArray
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.normal_form import NormalForm
from cg4ai.rules.regions import Box, Pool, Region, column_names
from cg4ai.rules.rows import Rows

if TYPE_CHECKING:
    from cg4ai.protocols import Separator
    from cg4ai.rules.quadratic import QuadraticRules


class Requirement(Protocol):
    """What the loop asks of a requirement; any object with these members can take part."""

    @property
    def name(self) -> str: ...

    @property
    def slack(self) -> str:
        """ "row": each row may be missed by itself; "shared": one slack for all of them."""
        ...

    @property
    def region(self) -> Region | Pool | None:
        """Where rows are searched for; None if all rows are listed in the master."""
        ...

    @property
    def separator(self) -> Separator | Literal["mip"] | None: ...

    @property
    def input_size(self) -> int: ...

    @property
    def normal_form(self) -> NormalForm | None:
        """The rules over a region as arrays; None over a list, and where they are functions."""
        ...

    def check(self, input_size: int, output_size: int) -> None:
        """Raise InvalidInput if this does not fit a predictor of these sizes.

        Also tells the requirement how many outputs there are, which some rows need.
        """
        ...

    def rows(self, number: int) -> Rows | None:
        """All rows of a list or Pool, `number` being this requirement's; None over a region."""
        ...

    def rows_at(self, inputs: Array, which: IntArray, number: int) -> Rows:
        """Over a region: row k is rule `which[k]` at `inputs[k]`."""
        ...

    def violations(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Over a region: (k, d), (..., k, r) -> (..., k, rules), positive where violated."""
        ...

    def describe(self, rows: Rows, j: int) -> str:
        """One readable line for row j of `rows`."""
        ...

    @property
    def is_pointwise(self) -> bool:
        """Whether it is about each input alone, in its region or at every input."""
        ...

    def slack_at(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Of such a rule: (n, d), (n, r) -> (n,), how far from breaking it outputs are."""
        ...

    def explain_uncertified(self) -> str:
        """Why no certificate can be made of it, where it has no normal form."""
        ...


class RequirementDefaults:
    """Defaults of `Requirement`: rules without a normal form, which a search looks at alone."""

    @property
    def normal_form(self) -> Any:
        return None

    @property
    def is_pointwise(self: Requirement) -> bool:
        return isinstance(self.region, Region)

    def slack_at(self: Requirement, inputs: Tensor, outputs: Tensor) -> Tensor:
        return -self.violations(inputs, outputs).amax(1)

    def explain_uncertified(self) -> str:
        """Why no certificate can be made of a rule without a normal form."""
        return (
            f"{self.name} ({type(self).__name__}) cannot be certified; Linear, Probability, Margin "  # type: ignore[attr-defined]
            "and Quadratic over a region can"
        )


@dataclass(frozen=True, eq=False)
class InputRule(RequirementDefaults):
    """The common fields. `inputs`: array-like (m, d), `Pool`, `Box`, `Ball` or `Polytope`.

    None leaves the place open, for layers (`cg4ai.nn`) that are told it once for all their rules.

    `separator` searches a region or Pool for violated inputs: an object of
    `cg4ai.colgen.separation`, or "mip" for the
    most violated ones, with a bound, by mixed-integer programs.
    """

    inputs: Any
    name: str = field(default="", kw_only=True)
    slack: str = field(default="default", kw_only=True)
    separator: Separator | Literal["mip"] | None = field(default=None, kw_only=True)
    output_size: int | None = field(default=None, init=False, repr=False)
    feature_names: tuple[str, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.inputs is not None and not isinstance(self.inputs, Region | Pool):
            object.__setattr__(self, "feature_names", column_names(self.inputs))
            listed = arrays.as_table(self.inputs, f"the inputs of {type(self).__name__}")
            object.__setattr__(self, "inputs", listed)
        if isinstance(self.inputs, Pool):
            object.__setattr__(self, "feature_names", self.inputs.feature_names)
        if not isinstance(self.name, str):
            raise InvalidInput(
                f"the name of a requirement must be text, got {self.name!r}", code="type"
            )
        object.__setattr__(self, "name", self.name or type(self).__name__)
        if self.slack == "default" and self.inputs is not None:
            object.__setattr__(self, "slack", "shared" if self.over_region else "row")
        if self.slack not in ("row", "shared", *(["default"] if self.inputs is None else [])):
            hint = did_you_mean(str(self.slack), ["row", "shared"])
            raise InvalidInput(
                f'slack must be "row" or "shared", got {self.slack!r}{hint}', code="unknown-name"
            )
        if isinstance(self.separator, str) and self.separator != "mip":
            raise InvalidInput(
                'a separator is an object of cg4ai.colgen.separation or "mip", got '
                f"{self.separator!r}",
                code="type",
            )
        if not isinstance(self.separator, str | None) and not all(
            callable(getattr(self.separator, name, None)) for name in ("find", "thorough")
        ):
            raise InvalidInput(
                f"the separator of {self.name} needs find() and thorough(), which "
                f"{type(self.separator).__name__} lacks: derive it from "
                "cg4ai.colgen.SeparatorDefaults"
            )

    def resolve_names(
        self, features: Sequence[str], outputs: Sequence[str], ends: tuple[Array, Array]
    ) -> Self:
        """The same by positions, where columns and outputs have these names.

        A box by names has the `ends` (d,) of the data in the features that it leaves out.
        """
        changes = self._positions(outputs)
        if isinstance(self.inputs, Box) and self.inputs.by_name:
            changes["inputs"] = self.inputs.resolve_names(features, ends, self.name)
        return replace(self, **changes) if changes else self

    def _positions(self, outputs: Sequence[str]) -> dict[str, Any]:
        """What changes where outputs have these names."""
        return {}

    def require_place(self) -> None:
        if self.inputs is None:
            raise InvalidInput(
                f"{self.name} does not say where it holds; give a region or a list of inputs",
                code="missing-argument",
            )

    def place_over(self, region: Region) -> Self:
        """The same rule over this region, where it leaves the place open."""
        return self if self.inputs is not None else replace(self, inputs=region)

    @property
    def stated_width(self) -> int | None:
        """How many outputs it speaks of; None where it does not say."""
        return self.output_size

    @property
    def region(self) -> Region | Pool | None:
        return self.inputs if isinstance(self.inputs, Region | Pool) else None

    @property
    def over_region(self) -> bool:
        """True over a region, where the inputs cannot be listed."""
        return isinstance(self.inputs, Region)

    @property
    def points(self) -> Array:
        """The listed inputs (m, d), of a list or a Pool; objects where raw columns hold text."""
        if isinstance(self.inputs, Region):
            raise InvalidInput(
                f"{self.name} holds over {self.inputs}, whose inputs have no list",
                code="unsupported",
            )
        self.require_place()
        listed: Array = self.inputs.inputs if isinstance(self.inputs, Pool) else self.inputs
        return listed

    @property
    def input_size(self) -> int:
        if isinstance(self.inputs, Region):
            return self.inputs.size
        return int(self.points.shape[1])

    @property
    def missing_features(self) -> IntArray:
        """The features that are missing (NaN) in some listed input."""
        if self.inputs is None or self.over_region or self.points.dtype == object:
            return np.empty(0, np.int64)
        return np.flatnonzero(np.isnan(self.points).any(axis=0))

    def check_missing(self, who: str) -> None:
        """Refuse missing values for `who` takes none, if any are listed."""
        if len(self.missing_features):
            raise InvalidInput(
                f"{self.name} lists inputs in which feature {self.missing_features[0]} is "
                "missing (NaN), "
                f"and {who} take no missing values: fill them in, list other inputs, or use "
                'members that take them (members="boosting", "forest" or "tree")',
                code="missing-values",
            )

    def fit(self, input_size: int, output_size: int) -> None:
        """Compare with the sizes of a predictor and remember `output_size`."""
        if not self.over_region and self.points.dtype == object:
            raise InvalidInput(
                f"{self.name} lists raw columns with text or missing values, and members take "
                "numbers: put what encodes and imputes them into a pipeline, and use "
                "cg4ai.data.fit_with_requirements, or cg4ai.data.transform_requirement",
                code="missing-values",
            )
        if input_size != self.input_size:
            raise InvalidInput(
                f"{self.name} has inputs with {self.input_size} features, but the predictor takes "
                f"{input_size}",
                code="shape",
            )
        if self.output_size not in (None, output_size):
            raise InvalidInput(
                f"{self.name} is made for {self.output_size} outputs, but the predictor has "
                f"{output_size}; make a new requirement for it",
                code="shape",
            )
        object.__setattr__(self, "output_size", int(output_size))

    def known_output_size(self) -> int:
        if self.output_size is None:
            raise InvalidInput(
                f"{self.name} does not know yet how many outputs the predictor has; call "
                "check(input_size, output_size) first"
            )
        return self.output_size

    @property
    def normal_form(self) -> AffineRules | QuadraticRules | None:
        """The rules over a region as arrays; None where they are functions in Python."""
        return None

    def rows_at(self, inputs: Array, which: IntArray, number: int) -> Rows:
        return self._in_normal_form().rows(inputs, which, number)

    def violations(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return -self._in_normal_form().slack(inputs, outputs)

    def _in_normal_form(self) -> AffineRules | QuadraticRules:
        self.require_region()
        rules = self.normal_form
        if rules is None:
            raise InvalidInput(
                f"{self.name} has no rules over {self.inputs} in normal form", code="unsupported"
            )
        return rules

    def require_region(self) -> None:
        if not self.over_region:
            raise InvalidInput(
                f"{self.name} lists its inputs: its rows come from rows(number)", code="unsupported"
            )


def rows_at_centre(requirement: Requirement, output_size: int, number: int = 0) -> Rows:
    """Every rule over a region at its centre."""
    assert isinstance(requirement.region, Region)
    centre, count = requirement.region.middle[None], count_rules_over(requirement, output_size)
    return requirement.rows_at(np.repeat(centre, count, axis=0), np.arange(count), number)


def count_rules_over(requirement: Requirement, output_size: int) -> int:
    """How many rules a requirement over a region has at each input."""
    assert isinstance(requirement.region, Region)
    centre = torch.as_tensor(requirement.region.middle[None])
    with torch.no_grad():
        outputs = torch.zeros(1, output_size, dtype=torch.float64)
        return int(requirement.violations(centre, outputs).shape[-1])


def find_position(value: Any, known: Sequence[str], rule: str, what: str) -> int:
    """Where a name stands among the known ones; a position stays as it is."""
    if not isinstance(value, str):
        return as_whole_number(value, f"the {what} of {rule}", least=0)
    if value not in known:
        shown = ", ".join(list(known)[:10]) or "none, so give positions"
        raise InvalidInput(
            f"{rule} names the {what} {value!r}{did_you_mean(value, known)}; there are: {shown}",
            code="unknown-name",
        )
    return list(known).index(value)


def as_whole_number(value: Any, what: str, *, least: int) -> int:
    """`value` as an int; booleans, fractions and text are refused."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidInput(f"{what} must be a whole number >= {least}, got {value!r}", code="range")
    return int(value)


def as_class_labels(given: Any, count: int) -> Any:
    """(count,) class numbers, or names as text."""
    plain = np.asarray(given) if not isinstance(given, Tensor) else np.empty(0)
    text = plain.dtype.kind == "U" or (
        plain.dtype == object and plain.size and all(isinstance(one, str) for one in plain.flat)
    )
    if not text:
        return arrays.as_labels(given, "labels", count)
    if plain.shape not in ((), (count,)):
        raise InvalidInput(
            f"labels must be one or {count} of them, got shape {plain.shape}", code="shape"
        )
    return np.array(np.broadcast_to(plain.astype(str), (count,)))


def describe_input(rows: Rows, j: int) -> str:
    """`input 17` for a listed row, the first coordinates of the input for one of a region."""
    if rows.origin is not None and rows.origin[j, 0] >= 0:
        return f"input {rows.origin[j, 0]}"
    point = rows.inputs[j if rows.index is None else rows.index[j]]
    shown = ", ".join(f"{value:.4g}" for value in point[:6])
    return f"at x = [{shown}{', ...' if len(point) > 6 else ''}]"
