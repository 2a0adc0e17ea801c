"""What a member's raw outputs can be on cells: straight lines with a gap between them.

Raw outputs are those before any softmax. `functional(c)` bounds `c . raw(x)` on each cell by two
parallel affine functions; differences of outputs are bounded as such, never output by output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker import bands
from cg4ai_checker.bands import Array, Band
from cg4ai_checker.cells import Cells
from cg4ai_checker.scale import SMALLEST_FACTOR, UNIT

BANDS: dict[str, Callable[[Array, Array], Band]] = {
    "relu": bands.relu,
    "gelu": bands.gelu,
    "tanh": bands.tanh,
}


@dataclass(frozen=True)
class Lines:
    """`low + slope . delta <= f(x) <= high + slope . delta`, delta = x - centre of the cell.

    `low` and `high` (n,), `slope` (n, d). `blame` (n, d) says which dimensions widen the gap
    between the two; it only guides where cells are halved.
    """

    low: Array
    high: Array
    slope: Array
    blame: Array


class Linearised(Protocol):
    """One member on n cells."""

    def functional(self, c: Array) -> Lines:
        """Bounds of `c . raw outputs` with `c` (n, K), its own row for each cell."""
        ...


class Part(Protocol):
    """A stack of members of one kind."""

    @property
    def count(self) -> int: ...

    @property
    def output_size(self) -> int: ...

    @property
    def groups(self) -> tuple[int, ...]:
        """Sizes of the groups of outputs under a softmax; none if outputs are raw."""
        ...

    @property
    def masses(self) -> tuple[Array, ...]:
        """What no sum inside a member exceeds on the region, layer by layer.

        The last, (count, K), is about raw outputs, and zero only for those that are always zero.
        """
        ...

    @property
    def terms(self) -> int:
        """At least how many numbers are added on the way from inputs to any output."""
        ...

    @property
    def numbers_per_cell(self) -> int:
        """About how many float64 numbers are held at once while one cell is bounded."""
        ...

    def on(self, member: int, cells: Cells) -> Linearised: ...


@dataclass(frozen=True)
class NetworkPart:
    """Networks of one shape; `weights[l]` (count, out, in), `biases[l]` (count, out).

    The first weights act on `x - shift` in the inputs' own units: their scale is divided out.
    `masses[l]` (count, out) bounds every pre-activation of layer l and every sum that makes it.
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    skip: Array | None
    shift: Array
    activation: str
    groups: tuple[int, ...]
    masses: tuple[Array, ...]

    @classmethod
    def build(
        cls,
        weights: list[Array],
        biases: list[Array],
        *,
        skip: Array | None,
        shift: Array,
        scale: Array,
        activation: str,
        groups: tuple[int, ...],
        region: tuple[Array, Array],
    ) -> NetworkPart:
        """From parameters as stored and the box `region` that holds all inputs."""
        reach = np.maximum(np.abs(region[0] - shift), np.abs(region[1] - shift)) / scale
        masses = [_mass(weights[0], reach) + np.abs(biases[0])]
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            # |slope t| + |offset| <= 4 |t| for every band of an activation with |f(t)| <= |t|
            spread = np.einsum("moh,mh->mo", np.abs(weight), 4 * masses[-1] + 1)
            masses.append(spread + np.abs(bias))
        if skip is not None:
            masses[-1] = masses[-1] + _mass(skip, reach)
        weights = [weights[0] / scale, *weights[1:]]
        own_skip = None if skip is None else skip / scale
        return cls(
            tuple(weights), tuple(biases), own_skip, shift, activation, groups, tuple(masses)
        )

    @property
    def count(self) -> int:
        return len(self.biases[0])

    @property
    def output_size(self) -> int:
        return int(self.biases[-1].shape[1])

    @property
    def terms(self) -> int:
        return int(self.weights[0].shape[2] + sum(bias.shape[1] for bias in self.biases))

    @property
    def numbers_per_cell(self) -> int:
        """Coefficients carried back: each row of a layer's weights reaches all earlier layers."""
        inputs, hidden = self.weights[0].shape[2], [bias.shape[1] for bias in self.biases[:-1]]
        rows, widest = max([1, *hidden[1:]]), max([inputs, *hidden])
        return int(4 * rows * widest + 8 * sum(hidden) + 8 * inputs + 4 * self.output_size)

    def on(self, member: int, cells: Cells) -> LinearisedNetwork:
        return LinearisedNetwork(self, member, cells)


def rounding(part: Part) -> float:
    """Relative to the mass: what sums inside members, here and in inference, may be off by."""
    return UNIT * float(part.terms + 64)


def _mass(weight: Array, reach: Array) -> Array:
    """`|weight| @ reach`, (count, out), with no product of numbers above zero rounded to zero."""
    return _not_vanishing(weight) @ _not_vanishing(reach)


def _not_vanishing(array: Array) -> Array:
    size = np.abs(array)
    return np.where(size > 0, np.maximum(size, SMALLEST_FACTOR), 0.0)


class LinearisedNetwork:
    """One network on cells: the band of every hidden unit, layer after layer."""

    def __init__(self, part: NetworkPart, member: int, cells: Cells) -> None:
        self._part, self._member = part, member
        self._offset = cells.centre - part.shift
        self._radius = cells.radius
        self._bands: list[Band] = []
        self._per_unit = 1 / np.maximum(self._radius @ np.abs(part.weights[0][member]).T, 1e-300)
        for layer in range(len(part.weights) - 1):
            low, high = self._before(layer)
            self._bands.append(BANDS[part.activation](low, high))

    def _before(self, layer: int) -> tuple[Array, Array]:
        """Least and largest pre-activations of a hidden layer, (n, width)."""
        weight, bias = self._part.weights[layer][self._member], self._part.biases[layer]
        mass = self._part.masses[layer][self._member]
        if layer == 0:
            middle = self._offset @ weight.T + bias[self._member]
            low = high = middle
            spread = self._radius @ np.abs(weight).T
        else:
            v = np.broadcast_to(weight, (len(self._offset), *weight.shape))
            low, high, slope, _ = self._backward(v, layer)
            low, high = low + bias[self._member], high + bias[self._member]
            spread = np.einsum("nmd,nd->nm", np.abs(slope), self._radius)
        spread = spread + rounding(self._part) * mass
        return np.clip(low - spread, -mass, mass), np.clip(high + spread, -mass, mass)

    def _backward(self, v: Array, layer: int) -> tuple[Array, Array, Array, Array]:
        """Lines of `v . (outputs of hidden layer number `layer` - 1)`: v (n, m, width).

        Returns low and high (n, m), slope (n, m, d), and (n, m, width of the first layer) what
        each unit of the first layer adds to the gap.
        """
        low = high = np.zeros(v.shape[:2])
        gaps = np.zeros((*v.shape[:2], 0))
        for number in range(layer - 1, -1, -1):
            band = self._bands[number]
            middle = 0.5 * (band.ceiling + band.floor)
            half = 0.5 * (band.ceiling - band.floor)
            shift = np.einsum("nmh,nh->nm", v, middle)
            gaps = np.abs(v) * half[:, None, :]
            gap = gaps.sum(axis=2)
            v = v * band.slope[:, None, :]
            shift = shift + v @ self._part.biases[number][self._member]
            low, high = low + shift - gap, high + shift + gap
            v = v @ self._part.weights[number][self._member]
        value = np.einsum("nmd,nd->nm", v, self._offset)
        return low + value, high + value, v, gaps

    def functional(self, c: Array) -> Lines:
        part, member = self._part, self._member
        start = (c @ part.weights[-1][member])[:, None, :]
        low, high, slope, gaps = self._backward(start, len(part.weights) - 1)
        own, slopes = c @ part.biases[-1][member], slope[:, 0]
        if part.skip is not None:
            direct = c @ part.skip[member]
            slopes = slopes + direct
            own = own + np.einsum("nd,nd->n", direct, self._offset)
        error = rounding(part) * (np.abs(c) @ part.masses[-1][member])
        low, high = low[:, 0] + own - error, high[:, 0] + own + error
        return Lines(low, high, slopes, self._blame(slopes, high - low, gaps[:, 0]))

    def _blame(self, slope: Array, gap: Array, gaps: Array) -> Array:
        """First-layer units pass their gaps on by weight; the rest goes by slope."""
        reach = np.abs(slope) * self._radius
        rest = np.maximum(gap - 2 * gaps.sum(axis=1), 0.0)
        blame: Array = reach * (rest / np.maximum(reach.sum(axis=1), 1e-300))[:, None]
        if gaps.shape[1]:
            first = np.abs(self._part.weights[0][self._member])
            blame += 2 * ((gaps * self._per_unit) @ first) * self._radius
        return blame


@dataclass(frozen=True)
class ConstantPart:
    """Members with the same outputs everywhere: `values` (count, K)."""

    values: Array
    groups: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def output_size(self) -> int:
        return int(self.values.shape[1])

    @cached_property
    def masses(self) -> tuple[Array, ...]:
        return (np.abs(self.values),)

    @property
    def terms(self) -> int:
        return self.output_size

    @property
    def numbers_per_cell(self) -> int:
        return 4 * (self.output_size + 1)

    def on(self, member: int, cells: Cells) -> LinearisedConstant:
        return LinearisedConstant(self, member, cells)


@dataclass(frozen=True)
class LinearisedConstant:
    part: ConstantPart
    member: int
    cells: Cells

    def functional(self, c: Array) -> Lines:
        exact = c @ self.part.values[self.member]
        error = rounding(self.part) * (np.abs(c) @ self.part.masses[-1][self.member])
        nothing = np.zeros_like(self.cells.lower)
        return Lines(exact - error, exact + error, nothing, nothing)


@dataclass(frozen=True)
class TreePart:
    """`initial + factor * sum over trees of the value of the leaf reached`, factor (count,).

    `feature`, `threshold`, `left`, `right` (count, trees, nodes), `value` (count, trees, nodes, K);
    a leaf points to itself. With `single` inputs are rounded to float32 before they are compared.
    """

    feature: NDArray[np.int64]
    threshold: Array
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: Array
    initial: Array
    factor: Array
    groups: tuple[int, ...]
    single: bool

    @property
    def count(self) -> int:
        return len(self.value)

    @property
    def output_size(self) -> int:
        return int(self.value.shape[3])

    @cached_property
    def masses(self) -> tuple[Array, ...]:
        largest = np.abs(self.value).max(axis=2).sum(axis=1)
        scaled = _not_vanishing(largest) * _not_vanishing(self.factor)[:, None]
        return largest, scaled + np.abs(self.initial)

    @property
    def terms(self) -> int:
        return int(self.value.shape[1] + self.value.shape[3])

    @property
    def numbers_per_cell(self) -> int:
        """Which nodes are reached, a byte for each of all trees, and the values of one tree."""
        _, trees, nodes, outputs = self.value.shape
        return int(trees * nodes // 8 + 4 * (nodes + outputs))

    def on(self, member: int, cells: Cells) -> LinearisedTrees:
        return LinearisedTrees(self, member, cells)


class LinearisedTrees:
    """One sum of trees on cells: the leaves that some input of each cell reaches."""

    def __init__(self, part: TreePart, member: int, cells: Cells) -> None:
        self._part, self._member = part, member
        self._asked = np.zeros_like(cells.lower)  # how often an input decides inside a cell
        lower, upper = cells.lower, cells.upper
        if part.single:  # rounding keeps the order, so rounded ends hold all rounded inputs
            lower = lower.astype(np.float32).astype(np.float64)
            upper = upper.astype(np.float32).astype(np.float64)
        self._leaves = [self._reached(tree, lower, upper) for tree in range(part.value.shape[1])]

    def _reached(self, tree: int, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """(n, nodes): the leaves of one tree that can be reached."""
        at = (self._member, tree)
        left, right = self._part.left[at], self._part.right[at]
        feature, threshold = self._part.feature[at], self._part.threshold[at]
        reached = np.zeros((len(lower), len(left)), bool)
        reached[:, 0] = True
        inner = np.flatnonzero(left != np.arange(len(left)))
        for node in inner.tolist():  # children come after their parent
            column = feature[node]
            goes_left = reached[:, node] & (lower[:, column] <= threshold[node])
            goes_right = reached[:, node] & (upper[:, column] > threshold[node])
            self._asked[:, column] += goes_left & goes_right
            reached[:, left[node]] |= goes_left
            reached[:, right[node]] |= goes_right
        reached[:, inner] = False
        return reached

    def functional(self, c: Array) -> Lines:
        part, member = self._part, self._member
        mass = np.abs(c) @ part.masses[-1][member]
        low = high = c @ part.initial[member]
        c = c * part.factor[member]
        for tree, leaves in enumerate(self._leaves):
            values = c @ part.value[member, tree].T
            low = low + np.where(leaves, values, np.inf).min(axis=1)
            high = high + np.where(leaves, values, -np.inf).max(axis=1)
        error = rounding(part) * mass
        blame = (high - low)[:, None] * self._asked
        return Lines(low - error, high + error, np.zeros_like(blame), blame)
