"""How the columns behind a pipeline's earlier steps move with raw ones, tried at many inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OrdinalEncoder

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.extras import import_optional
from cg4ai.records import Array
from cg4ai.rules.box import Box, find_end_categories
from cg4ai.rules.shapes import Monotone, Shape

BASES = 16  # inputs from which each column is moved
LADDER = np.concatenate([-np.logspace(4, -3, 29), np.logspace(-3, 4, 29)])
WITHIN = 65  # values between the ends of a box
CLOSE = 1e-6
APART = 1e-6  # of the largest value: slopes between closer ones would be rounding


class RawColumns:
    """The raw columns of a pipeline's fitted earlier steps.

    `data`, rows of the raw columns, are where columns are moved from; without them all columns
    must take any number.
    """

    def __init__(self, earlier: Pipeline, data: Any = None) -> None:
        self.earlier = earlier
        names = getattr(earlier, "feature_names_in_", None)
        self.names = None if names is None else tuple(map(str, names))
        self.size = int(earlier.n_features_in_)
        self.data = None if data is None else self._cells(data)
        generator = np.random.default_rng(0)
        if self.data is None:
            sizes = np.logspace(-2, 3, BASES)[:, None]
            self.bases: NDArray[Any] = generator.normal(size=(BASES, self.size)) * sizes
        else:
            count = min(BASES, len(self.data))
            self.bases = self.data[generator.choice(len(self.data), count, replace=False)]

    def _cells(self, data: Any) -> NDArray[Any]:
        if hasattr(data, "columns"):
            return np.asarray(data.to_numpy(dtype=object))
        return np.asarray(data.toarray() if hasattr(data, "toarray") else data)

    def transform_rows(
        self,
        inputs: NDArray[Any],
        own: Sequence[str] | None,
        rule: str,
        *,
        missing: bool = False,
    ) -> Array:
        """(m, d) of numbers, or objects, after the earlier steps; `own` names their columns."""
        table = inputs if self.names is None else self._frame(inputs, own, rule)
        try:
            made = self.earlier.transform(table)
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"{rule}: the pipeline's earlier steps do not take its inputs: {error}",
                code="unsupported",
            ) from error
        what = "requirement inputs after the pipeline's steps"
        return arrays.as_matrix(made, what, missing=missing)

    def _frame(self, inputs: NDArray[Any], own: Sequence[str] | None, rule: str) -> Any:
        """With the names that the steps were fitted on, and in their order."""
        assert self.names is not None
        absent = [name for name in self.names if own is not None and name not in own]
        if absent:
            raise InvalidInput(
                f"{rule} has no column {absent[0]!r}, which the pipeline takes", code="unknown-name"
            )
        if own is None and len(self.names) != inputs.shape[1]:
            raise InvalidInput(
                f"requirement inputs have {inputs.shape[1]} features, the pipeline takes "
                f"{len(self.names)}: {', '.join(self.names[:10])}",
                code="shape",
            )
        # the pipeline was fitted on named columns, so that rules must have them, too
        frame = import_optional("pandas").DataFrame(inputs, columns=list(own or self.names))
        return frame[list(self.names)].infer_objects()

    def transform_shape(self, shape: Shape) -> Shape:
        """The shape for what the earlier steps make of its features, by positions.

        A column that rises with a raw one takes over its sign, one that falls with it the
        opposite; for a curvature columns must be linear in it. Other steps are refused.
        """
        shape.check_list(self.size)
        known = replace(shape, listed=None).resolve_names(self.names or (), None)
        if max(known.features) >= self.size:
            raise InvalidInput(
                f"{shape.name} names feature {max(known.features)}; there are {self.size}",
                code="range",
            )
        signs: dict[int, int] = {}
        for feature, sign in known.features.items():
            values = self._ordered(feature, shape)
            if values is None:
                values = self._values(feature, shape.name)
            made = self._moved(feature, values, shape.name)
            for column, towards in self._directions(made, values, shape, feature).items():
                own = sign * towards if isinstance(shape, Monotone) else sign
                if signs.setdefault(column, own) != own:
                    raise InvalidInput(
                        f"{shape.name}: the pipeline's earlier steps put features of both signs "
                        f"into column {column}; state it in the space after them",
                        code="unsupported",
                    )
        return replace(known, features=signs)

    def transform_box(self, box: Box, rule: str) -> Box:
        """A box by names of raw columns as one by positions of the columns that move with them.

        Columns that it leaves out have the range of the training data there, too.
        """
        ends: dict[int, tuple[float, float]] = {}
        for feature, given in box.lower.items():
            place = self._place(feature, rule)
            inside = self._inside(place, given, rule)
            for column in np.flatnonzero(~np.isnan(inside).any(axis=0)):
                image = inside[:, column]
                ends[int(column)] = (float(image.min()), float(image.max()))
        return Box(ends)

    def _inside(self, place: int, given: Any, rule: str) -> Array:
        """(values, columns): images of the values of one raw column, NaN in columns it leaves be.

        Of categories the box holds what lies between the images, too.
        """
        named = find_end_categories(given)
        within: NDArray[Any]
        if named is None:
            low, high = given
            within, others = np.linspace(low, high, WITHIN), self._values(place, rule)
        else:
            within, others = self._named(place, named, rule), self._categories(place)
        made = self._moved(place, np.concatenate([within, others]), rule)
        inside, slack = made[:, : len(within)], _slack(made)
        reached = np.ptp(made, axis=1).max(axis=0) > slack
        rises = np.diff(inside, axis=1)
        one_way = (rises >= -slack).all(axis=(0, 1)) | (rises <= slack).all(axis=(0, 1))
        alone = np.ptp(inside, axis=0).max(axis=0) <= slack
        fits = alone & (one_way | (named is not None))
        if not reached.any() or not fits[reached].all():
            raise InvalidInput(
                f"{rule}: the pipeline's earlier steps do not map this box to a box: they "
                f"drop {self._called(place)}, mix it with others or turn back within the box; "
                "state the requirement in the space after them",
                code="unsupported",
            )
        return np.where(reached, inside[0], np.nan)

    def _categories(self, feature: int) -> NDArray[Any]:
        """The distinct values of a raw column, as objects; those that are missing left out."""
        cells = np.empty(0, object) if self.data is None else self.data[:, feature]
        distinct = {cell: None for cell in cells.tolist() if not _missing(cell)}
        return _objects(distinct)

    def _named(self, feature: int, named: Sequence[Any], rule: str) -> NDArray[Any]:
        """The categories that a box names; those that the data do not have are refused."""
        known = self._categories(feature).tolist()
        for one in named:
            if one not in known:
                hint = did_you_mean(str(one), map(str, known))
                raise InvalidInput(
                    f"{rule} names the category {one!r} of {self._called(feature)}{hint}; there "
                    f"are {', '.join(map(repr, known[:10])) or 'none, so give rows of the data'}",
                    code="unknown-name",
                )
        return _objects(named)

    def _place(self, feature: Any, rule: str) -> int:
        zeros = np.zeros(self.size)
        Box({feature: (0.0, 0.0)}).resolve_names(
            self.names or (), (zeros, zeros), rule
        )  # refuses unknown
        return self.names.index(feature) if self.names and isinstance(feature, str) else feature

    def _called(self, feature: int) -> str:
        return f"feature {feature}" if self.names is None else f"column {self.names[feature]!r}"

    def _encoder(self, feature: int) -> tuple[Any, int] | None:
        return _encoder(self.earlier, feature, self.names or list(map(str, range(self.size))))

    def _ordered(self, feature: int, shape: Shape) -> NDArray[Any] | None:
        """The categories in the order that an OrdinalEncoder was given, for something to rise with.

        None where the column has no such order; without one it would be that of the alphabet.
        """
        found = self._encoder(feature)
        if found is None or not isinstance(shape, Monotone):
            return None
        encoder, place = found
        if not isinstance(encoder, OrdinalEncoder) or isinstance(encoder.categories, str):
            return None
        return _objects([one for one in encoder.categories_[place] if not _missing(one)])

    def _values(self, feature: int, rule: str) -> Array:
        """Numbers of all sizes in order, with those that the data have; categories are refused."""
        if self._encoder(feature) is not None:
            self._refuse_categories(feature, rule)
        if self.data is None:
            return LADDER
        try:
            numbers = self.data[:, feature].astype(np.float64)
        except (TypeError, ValueError):
            self._refuse_categories(feature, rule)
        known = numbers[np.isfinite(numbers)]
        own = np.quantile(known, np.linspace(0, 1, 33)) if known.size else known
        values = np.unique(np.concatenate([LADDER, own]))
        apart = np.diff(values, prepend=-np.inf) > APART * np.abs(values).max()
        return np.asarray(values[apart | np.isin(values, LADDER)])

    def _refuse_categories(self, feature: int, rule: str) -> NoReturn:
        raise InvalidInput(
            f"{rule}: {self._called(feature)} holds categories, which have no order to rise or "
            "fall with and no ends; name columns of numbers, in a Box the categories themselves, "
            "or give their order to an OrdinalEncoder(categories=[...])",
            code="unsupported",
        )

    def _moved(self, feature: int, values: NDArray[Any], rule: str) -> Array:
        """(bases, values, columns): the images with one raw column at each of the values."""
        steps = np.repeat(self.bases[:, None], len(values), axis=1)
        if values.dtype == object:
            steps = steps.astype(object)
        steps[..., feature] = values
        try:
            made = self.transform_rows(steps.reshape(-1, self.size), self.names, rule, missing=True)
        except InvalidInput as error:
            if self.data is not None:
                raise
            raise InvalidInput(
                f"{error}; where columns hold text, give rows of them: "
                "transform_requirement(requirement, pipeline, X)",
                code=error.code,
            ) from error
        # what misses in other columns, for members that take it, does not move
        return np.nan_to_num(made).reshape(len(self.bases), len(values), -1)

    def _directions(
        self, made: Array, values: NDArray[Any], shape: Shape, feature: int
    ) -> dict[int, int]:
        """The columns that move with the feature, and which way; Curvature wants them linear."""
        rises, slack = np.diff(made, axis=1), _slack(made)
        upwards = np.asarray((rises >= -slack).all(axis=(0, 1)))
        downwards = np.asarray((rises <= slack).all(axis=(0, 1)))
        moved = np.ptp(made, axis=1).max(axis=0) > slack
        bad = moved & ~(upwards | downwards)
        if not isinstance(shape, Monotone):
            slopes = rises / np.diff(values)[None, :, None]
            bad |= np.ptp(slopes, axis=(0, 1)) > CLOSE * (1 + np.abs(slopes).max(axis=(0, 1)))
        if bad.any() or not moved.any():
            how = "do not move with" if not moved.any() else "turn back or bend with"
            raise InvalidInput(
                f"{shape.name}: columns after the pipeline's earlier steps {how} "
                f"{self._called(feature)}; state it in the space after them",
                code="unsupported",
            )
        return {int(k): 1 if upwards[k] else -1 for k in np.flatnonzero(moved)}


def _slack(made: Array) -> Array:
    """(columns,): by how much rounding moves each."""
    return np.asarray(CLOSE * 1e-3 * (1 + np.abs(made).max(axis=(0, 1))))


def _missing(cell: Any) -> bool:
    """Whether a cell is None, NaN or pd.NA: none of them equals itself, or says whether it does."""
    same = cell == cell
    return cell is None or not isinstance(same, bool | np.bool_) or not same


def _objects(values: Iterable[Any]) -> NDArray[Any]:
    listed = list(values)
    made = np.empty(len(listed), object)
    made[:] = listed
    return made


def _encoder(step: Any, feature: int, names: Sequence[str]) -> tuple[Any, int] | None:
    """The fitted step that takes the raw column for one of categories, and its place there."""
    if isinstance(step, Pipeline):
        for _, one in step.steps:
            found = _encoder(one, feature, names)
            if found is not None:
                return found
            if isinstance(one, ColumnTransformer):  # behind it columns are others
                break
        return None
    if isinstance(step, ColumnTransformer):
        for _, one, columns in step.transformers_:
            places = _positions(columns, names)
            if feature in places:
                found = _encoder(one, places.index(feature), [names[k] for k in places])
                if found is not None:
                    return found
        return None
    return (step, feature) if hasattr(step, "categories_") else None


def _positions(columns: Any, names: Sequence[str]) -> list[int]:
    """Where the columns of one part of a ColumnTransformer stand among all."""
    if isinstance(columns, slice) and isinstance(columns.start or columns.stop, str):
        first, last = columns.start or names[0], columns.stop or names[-1]
        return list(range(names.index(first), names.index(last) + 1))
    given = columns if isinstance(columns, slice) else np.atleast_1d(columns)
    if isinstance(given, slice) or given.dtype.kind in "biu":
        return [int(one) for one in np.arange(len(names))[given]]
    return [names.index(str(one)) for one in given]
