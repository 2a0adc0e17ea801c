"""The normal form of rules over a region: rows, search, shield, claims and proofs all read it.

Rule l reads `sum_k (constant[l, k] + slope[l, k] . x) y_k(x) <= max over its pieces p of
(limit[p] + tilt[p] . x)` with y the outputs of the predictor; most rules have one piece without
tilt, a number. Rules with ">=" are negated, "==" gives the ">=" sides and then the "<=" sides.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.data.sparse import SparseMatrix, plan_product
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.bounds import Bounds, build_bounds, depends_on_input
from cg4ai.rules.coefficients import AffineCoefficients, Products, check_slopes
from cg4ai.rules.normal_form import NormalFormDefaults, SlackOfOne, SlackOfSome
from cg4ai.rules.peaks import minimise_maximum
from cg4ai.rules.regions import Region
from cg4ai.rules.rows import LinearRows, region_origin

if TYPE_CHECKING:
    from cg4ai.rules.requirement import Requirement

AIM = 1e-12  # how far inside a bound a restored output aims, relative to `Guard.scale`
# what the normal form consists of, in the order in which it is digested
ARRAYS = {
    "constant": np.float64,
    "limit": np.float64,
    "rule": np.int64,
    "output": np.int64,
    "input": np.int64,
    "value": np.float64,
    "tilt": np.float64,
    "piece": np.int64,
}


SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


class WorstSlack(NamedTuple):
    """`slack` (L,): at least so much is left of each rule in the region; `points` (L, d): where.

    Over a Polytope `multipliers` (L, k) of its limits prove it, for rules of one piece; those of
    other rules are 0.
    """

    slack: Array
    points: Array
    multipliers: Array | None = None


@dataclass(frozen=True)
class _Tensors:
    """What `slack` multiplies by; None where nothing is to be added, or looked up."""

    limit: Tensor
    tilt: Tensor | None
    pieces: Tensor | None
    fixed: Tensor | None
    inputs: Tensor
    outputs: Tensor | None
    slopes: Tensor | None


@dataclass(frozen=True, eq=False)
class AffineRules(NormalFormDefaults):
    """All rules of a requirement in normal form, in the order of its rule numbers.

    `constant` (L, r); `rule`, `output`, `input`, `value` (k,) are the slopes, each (rule, output,
    input) at most once: summing repeats would depend on their order. `limit` (P,), `tilt` (P, d)
    and `piece` (P,), the rule that each piece belongs to, in ascending order, are the bounds;
    without `tilt` and `piece` each rule has one piece, a number.
    """

    constant: Array
    limit: Array
    rule: IntArray
    output: IntArray
    input: IntArray
    value: Array
    input_size: int
    tilt: Array = None  # type: ignore[assignment]
    piece: IntArray = None  # type: ignore[assignment]
    _tensors: dict[tuple[torch.dtype, torch.device], _Tensors] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        absent = [name for name in ("tilt", "piece") if getattr(self, name) is None]
        if "tilt" in absent:
            object.__setattr__(self, "tilt", np.zeros((len(self.limit), self.input_size)))
        if "piece" in absent:
            object.__setattr__(self, "piece", np.arange(len(self.limit)))
        for name, kind in ARRAYS.items():
            given = np.asarray(getattr(self, name))
            array = np.ascontiguousarray(given, kind)
            if not np.array_equal(array, given) or not np.isfinite(array).all():
                raise InvalidInput(
                    f"{name} of affine rules must be finite and {kind.__name__}", code="not-finite"
                )
            object.__setattr__(self, name, array)
        if self.constant.ndim != 2:
            raise InvalidInput(
                f"affine rules need constant (L, r), got {self.constant.shape}", code="shape"
            )
        sizes = (len(self), self.output_size, self.input_size)
        check_slopes((self.rule, self.output, self.input), self.value, sizes=sizes)
        self._check_pieces()

    def _check_pieces(self) -> None:
        count = len(self.limit)
        shapes = self.limit.shape, self.tilt.shape, self.piece.shape
        if shapes != ((count,), (count, self.input_size), (count,)):
            raise InvalidInput(
                f"bounds of affine rules need limit (P,), tilt (P, {self.input_size}) and piece "
                f"(P,), got {shapes}",
                code="shape",
            )
        steps = np.diff(self.piece, prepend=-1, append=len(self))
        if not np.isin(steps, (0, 1)).all() or steps[0] == 0 or steps[-1] == 0:
            raise InvalidInput(
                f"each of {len(self)} affine rules needs a limit, or several after one another; "
                f"the {count} limits given belong to rules {self.piece[:8]}...",
                code="shape",
            )

    @classmethod
    def of(
        cls, coefficients: AffineCoefficients, bound: Any, sense: str, *, input_size: int
    ) -> AffineRules:
        """`coefficients . y sense bound`, brought to "<=".

        `bound`: one number, one for each of the L rules, or an `AffineBound`, `Largest` or
        `Smallest`.
        """
        a, count = coefficients, len(coefficients.constant)
        if depends_on_input(bound):
            bound = build_bounds(bound, sense, count=count, input_size=input_size)
        parts = [(-1.0, 0)] if sense == ">=" else [(1.0, 0)]
        if sense == "==":
            parts = [(-1.0, 0), (1.0, count)]
        if isinstance(bound, Bounds):  # pieces of one rule after one another
            limit = bound.offset.T.reshape(-1)
            tilt = bound.slope.transpose(1, 0, 2).reshape(-1, input_size)
            piece = np.repeat(np.arange(count), len(bound.offset))
        else:
            limit, piece = np.broadcast_to(np.asarray(bound, float), (count,)), np.arange(count)
            tilt = np.zeros((count, input_size))
        return cls(
            np.concatenate([sign * a.constant for sign, _ in parts]),
            np.concatenate([sign * limit for sign, _ in parts]),
            np.concatenate([a.rule + first for _, first in parts]),
            np.tile(a.output, len(parts)),
            np.tile(a.input, len(parts)),
            np.concatenate([sign * a.value for sign, _ in parts]),
            input_size,
            np.concatenate([sign * tilt for sign, _ in parts]) + 0.0,  # no -0.0 in the digest
            np.concatenate([piece + first for _, first in parts]),
        )

    def __len__(self) -> int:
        return len(self.constant)

    @cached_property
    def plain(self) -> bool:
        """Whether every bound is one number."""
        return len(self.limit) == len(self) and not self.tilt.any()

    def require_plain(self, what: str) -> None:
        """Refuse bounds that depend on the input, for `what`, which does not know them."""
        if not self.plain:
            raise InvalidInput(
                f"{what} know bounds that are numbers, and these rules have bounds that depend on "
                "the input; a shield keeps such rules at every input",
                code="unsupported",
            )

    @cached_property
    def pieces(self) -> IntArray:
        """(L, K): the pieces of each rule; those with fewer repeat their last."""
        first, end = (np.searchsorted(self.piece, np.arange(len(self)), side) for side in SIDES)
        most = int((end - first).max(initial=1))
        return np.asarray(np.minimum(first[:, None] + np.arange(most), end[:, None] - 1))

    @property
    def output_size(self) -> int:
        return int(self.constant.shape[1])

    @property
    def free_of_inputs(self) -> bool:
        return not (self.tilt.any() or self.value.any())

    @property
    def reads(self) -> NDArray[np.bool_]:
        """(L, r): which outputs each rule reads."""
        result = np.asarray(self.constant != 0)
        result[self.rule[self.value != 0], self.output[self.value != 0]] = True
        return np.asarray(result)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The rules as named arrays, for `from_arrays`."""
        return {name: getattr(self, name) for name in ARRAYS}

    @classmethod
    def from_arrays(cls, stored: Mapping[str, NDArray[Any]], *, input_size: int) -> AffineRules:
        """What `arrays` gave; KeyError or InvalidInput if it is damaged."""
        return cls(**{name: stored[name] for name in ARRAYS}, input_size=input_size)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of coefficients and limits, not of where the rules hold."""
        total = hashlib.sha256()
        for name, array in self.arrays.items():
            total.update(f"{name} {array.shape}".encode())
            total.update(array.tobytes())
        return total.hexdigest()

    @cached_property
    def _products(self) -> Products:
        return Products.of(self.rule, self.output, self.input, value=self.value, count=len(self))

    @cached_property
    def _sparse(self) -> SparseMatrix | None:
        """(L, p): the slopes with their sign turned, where most are zero."""
        return SparseMatrix.of(np.ascontiguousarray(-self._products.matrix.T))

    def slopes(self, rule: int) -> Array:
        """(r, d), dense, of one rule."""
        own = self.rule == rule
        dense = np.zeros((self.output_size, self.input_size))
        dense[self.output[own], self.input[own]] = self.value[own]
        return dense

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        """(m, r): the coefficients of rule `which[j]` at `inputs[j]`."""
        return self._products.coefficients(self.constant, inputs, which)

    def values(self, inputs: Array, outputs: Array) -> Array:
        """(n, d), (n, r) -> (n, L): to be compared with `bounds`."""
        return np.asarray(self._products.values(self.constant, inputs, outputs))

    def bounds(self, inputs: Array, which: IntArray | None = None) -> Array:
        """(n, d) -> (n, L); with `which` (n,) only that of rule `which[j]` at `inputs[j]`."""
        if which is None:
            each = self.limit + inputs @ self.tilt.T
            return np.asarray(each[:, self.pieces].max(axis=-1))
        own = self.pieces[which]
        return np.asarray(
            (self.limit[own] + np.einsum("nkd,nd->nk", self.tilt[own], inputs)).max(1)
        )

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L), `bound - value`: at least 0 where a rule is kept."""
        own = self._on(outputs)
        shape = (*outputs.shape[:-1], len(self))
        result = own.limit
        if own.tilt is not None:
            result = result + inputs @ own.tilt
        if own.pieces is not None:
            result = result[..., own.pieces].amax(-1)
        if result.dim() > 1:
            result = result.expand(shape).reshape(-1, len(self))
        if own.fixed is not None:
            result = torch.addmm(result, outputs.reshape(-1, self.output_size), own.fixed)
        if own.slopes is not None:
            chosen = outputs if own.outputs is None else outputs.index_select(-1, own.outputs)
            if self._sparse is not None and self._sparse.can_multiply(outputs):
                # outputs first, as networks lay them out: the other way all would be copied
                products = inputs.mT.index_select(-2, own.inputs) * chosen.mT
                added = self._sparse.multiply(products).mT
                return (result if result.dim() == 1 else result.reshape(shape)) + added
            products = inputs.index_select(-1, own.inputs) * chosen
            result = torch.addmm(result, products.reshape(-1, len(own.slopes)), own.slopes)
        return result.expand(shape) if result.dim() == 1 else result.reshape(shape)

    @property
    def is_separable(self) -> bool:
        """Not where rules have several bounds, or products of inputs and outputs in common."""
        return len(self.limit) == len(self) and not len(self.value)

    def find_broken(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Opposite rules, such as both limits of a range, count once."""
        limit, (tilt, fixed, which, sign) = self._on(outputs).limit, self._up_to_sign(outputs)
        with torch.no_grad():
            values = (outputs @ fixed + inputs @ tilt).reshape(-1, fixed.shape[1])
            least, largest = values.amin(0)[which], values.amax(0)[which]
            slack = limit + torch.where(sign > 0, least, -largest)
            return (~(slack >= 0)).nonzero()[:, 0]

    def _up_to_sign(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What inputs and outputs are multiplied by in rules that differ by more than their sign.

        (d, U) and (r, U); then, for each rule, which of these it is and with what sign, (L,) each.
        """
        key = (like.dtype, like.device)
        if key not in self._signed:
            rows = np.hstack([self.tilt, -self.constant])
            leading = rows[np.arange(len(rows)), (rows != 0).argmax(1)]
            turn = np.where(leading < 0, -1.0, 1.0)
            _, first, which = np.unique(
                rows * turn[:, None] + 0.0, axis=0, return_index=True, return_inverse=True
            )
            which = which.reshape(-1)
            tilt, fixed = np.split(rows[first].T, [self.input_size])
            self._signed[key] = (
                torch.as_tensor(tilt).to(like),
                torch.as_tensor(fixed).to(like),
                torch.as_tensor(which, device=like.device),
                torch.as_tensor(turn * turn[first][which]).to(like),
            )
        return self._signed[key]

    @cached_property
    def _signed(
        self,
    ) -> dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor, Tensor, Tensor]]:
        return {}

    def pick(self, which: Tensor, like: Tensor) -> SlackOfSome:
        own = self._on(like)
        limit = own.limit.index_select(0, which)
        tilt = None if own.tilt is None else own.tilt.index_select(1, which)
        fixed = None if own.fixed is None else own.fixed.index_select(1, which)

        def compute_slack(inputs: Tensor, outputs: Tensor) -> Tensor:
            bound = limit if tilt is None else limit + inputs @ tilt
            if fixed is None:
                return bound.expand(*outputs.shape[:-1], len(which))
            return bound + outputs @ fixed

        return compute_slack

    def single(self) -> SlackOfOne | None:
        """`slack` for one input, by NumPy."""
        p, limit, pieces = self._products, self.limit, self.pieces
        tilt = self.tilt if self.tilt.any() else None
        chosen = None if len(limit) == len(self) else pieces
        fixed = plan_product(-self.constant) if self.constant.any() else None
        slopes = plan_product(-p.matrix.T) if len(p.matrix) else None
        in_order = np.array_equal(p.outputs, np.arange(self.output_size))

        def compute_slack(x: Array, y: Array) -> Array:
            bound = limit if tilt is None else limit + tilt.dot(x)
            if chosen is not None:
                bound = bound[chosen].max(axis=-1)
            total = bound[None]
            if fixed is not None:
                total = total + fixed(y)
            if slopes is not None:
                own = y if in_order else y.take(p.outputs, axis=1)
                total = total + slopes(x.take(p.inputs)[None] * own)
            return total if len(total) == len(y) else np.repeat(total, len(y), axis=0)

        return compute_slack

    def compute_slack_of_some(self, which: IntArray, x: Array, y: Array) -> Array:
        bound = self.limit[which] + self.tilt[which].dot(x)
        return np.asarray(bound - y.dot(self.constant[which].T))

    def bound_sizes(self, ends: Array) -> Array:
        """(L,) what no bound exceeds in size at inputs up to `ends` (d,) in size."""
        each = np.abs(self.limit) + np.abs(self.tilt) @ ends
        return np.asarray(each[self.pieces].max(axis=1))

    def sizes(self, inputs: Array, outputs: Array) -> Array:
        """(n, d), (n, r) -> (n, L): the sum of the sizes of a rule's terms, by which it rounds."""
        x, y = np.abs(inputs), np.abs(outputs)
        size = y @ np.abs(self.constant).T
        np.add.at(size.T, self.rule, (np.abs(self.value) * x[:, self.input] * y[:, self.output]).T)
        each = np.abs(self.limit) + x @ np.abs(self.tilt).T
        return np.asarray(size + each[:, self.pieces].max(axis=-1))

    def term_sizes(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L): as `sizes`, by tensors."""
        return self._in_sizes.slack(inputs.abs(), outputs.abs())

    @cached_property
    def _in_sizes(self) -> AffineRules:
        """Rules whose slack, at the sizes of inputs and outputs, is the sum of all sizes."""
        places = (self.rule, self.output, self.input)
        constant, limit, value, tilt = map(
            np.abs, (self.constant, self.limit, self.value, self.tilt)
        )
        return AffineRules(
            0.0 - constant, limit, *places, 0.0 - value, self.input_size, tilt, self.piece
        )

    def _on(self, like: Tensor) -> _Tensors:
        key = (like.dtype, like.device)
        if key not in self._tensors:
            self._tensors[key] = self._made(*key)
        return self._tensors[key]

    def _made(self, dtype: torch.dtype, device: torch.device) -> _Tensors:
        p = self._products
        in_order = np.array_equal(p.outputs, np.arange(self.output_size))  # then no copy is needed
        fixed, slopes = -self.constant.T, -p.matrix

        def number(array: NDArray[Any]) -> Tensor:
            return torch.as_tensor(array, dtype=dtype, device=device)

        def place(array: IntArray) -> Tensor:
            return torch.as_tensor(array, device=device)

        return _Tensors(
            number(self.limit),
            number(self.tilt.T) if self.tilt.any() else None,
            place(self.pieces) if len(self.limit) > len(self) else None,
            number(fixed) if fixed.any() else None,
            place(p.inputs),
            None if in_order else place(p.outputs),
            number(slopes) if len(slopes) else None,
        )

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """What `slack` multiplies by in float64, for `with_tensors`."""
        made = self._made(torch.float64, device)
        return {name: tensor for name, tensor in vars(made).items() if tensor is not None}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> AffineRules:
        """The same rules, whose `slack` multiplies by tensors such as `tensors` gave."""
        made = copy.copy(self)
        own = _Tensors(**{name: tensors.get(name) for name in _Tensors.__dataclass_fields__})  # type: ignore[arg-type]
        object.__setattr__(made, "_tensors", {(own.limit.dtype, own.limit.device): own})
        made.__dict__["_sparse"] = None  # what is computed by tensors given is computed by them
        return made

    def rows(self, inputs: Array, which: IntArray, number: int) -> LinearRows:
        """Rows of the master, `-value >= -bound`: rule `which[j]` at `inputs[j]`."""
        return LinearRows(
            number,
            inputs,
            -self.coefficients(inputs, which),
            -self.bounds(inputs, which),
            np.arange(len(inputs)),
            None,
            region_origin(which),
        )

    def worst(self, outputs: Array, region: Region) -> WorstSlack:
        """For constant outputs (r,): as `worst_affine`, always in closed form."""
        return self.worst_affine(np.zeros((self.output_size, self.input_size)), outputs, region)

    def closed_form(self, slopes: Array) -> NDArray[np.bool_]:
        """(L,): which rules have values affine in x for outputs `slopes @ x + constant`.

        Not those where an output that moves with x has a coefficient that does: their product is
        quadratic in x.
        """
        result = np.ones(len(self), bool)
        moving = np.any(slopes != 0, axis=1)[self.output] & (self.value != 0)
        result[self.rule[moving]] = False
        return result

    def worst_affine(self, slopes: Array, offsets: Array, region: Region) -> WorstSlack:
        """For outputs `slopes @ x + offsets`, (r, d) and (r,): the least slack of each rule.

        In closed form, over a Polytope or with several pieces by an LP, and never stated too high
        but for rounding.
        """
        quadratic = np.flatnonzero(~self.closed_form(slopes))
        if len(quadratic):
            raise InvalidInput(
                f"rule {quadratic[0]} multiplies outputs that are affine in the input by "
                "coefficients that are, too: its least slack has no closed form. Take constant "
                "outputs, or a rule with constant coefficients",
                code="unsupported",
            )
        rising = self.constant @ slopes
        np.add.at(rising, (self.rule, self.input), self.value * offsets[self.output])
        start = self.limit - (self.constant @ offsets)[self.piece]
        tilt = self.tilt - rising[self.piece]  # the slack of each piece is start + tilt . x
        first = self.pieces[:, 0]
        peaks = region.peaks(-tilt[first])
        result = WorstSlack(start[first] - peaks.values, peaks.inputs, peaks.multipliers)
        for rule in np.flatnonzero(self.pieces[:, -1] > first):
            own = self.piece == rule
            result.slack[rule], result.points[rule] = minimise_maximum(
                start[own], tilt[own], region
            )
            if result.multipliers is not None:
                result.multipliers[rule] = 0.0
        return result


def find_affine_rules(requirement: Requirement, *, output_size: int) -> AffineRules:
    """The normal form of a linear requirement over a region, or an error that says why not."""
    if not isinstance(requirement.region, Region):
        raise InvalidInput(
            f"{requirement.name} lists its inputs; a certificate speaks of a region. Audit listed "
            "inputs with ensemble.audit(requirement)",
            code="unsupported",
        )
    requirement.check(requirement.input_size, output_size)
    rules = requirement.normal_form
    if isinstance(rules, AffineRules):
        return rules
    raise InvalidInput(requirement.explain_uncertified(), code="unsupported")
