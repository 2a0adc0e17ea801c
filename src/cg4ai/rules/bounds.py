"""Bounds of rules that depend on the input: affine, or the largest or smallest of such pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput
from cg4ai.records import Array


@dataclass(frozen=True, eq=False)
class AffineBound:
    """`offset + slope . x`.

    `offset`: one number, or (L,) one for each rule; `slope`: (d,) for all rules, or (L, d).
    """

    offset: Any
    slope: Any

    def __post_init__(self) -> None:
        offset = arrays.as_numbers(self.offset, "the offset of an AffineBound")
        slope = arrays.as_numbers(self.slope, "the slope of an AffineBound")
        if offset.ndim > 1 or slope.ndim not in (1, 2) or slope.size == 0:
            raise InvalidInput(
                "an AffineBound needs an offset, one number or (L,), and a slope (d,) or (L, d), "
                f"got shapes {offset.shape} and {slope.shape}",
                code="shape",
            )
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "slope", slope)


@dataclass(frozen=True, eq=False)
class _Pieces:
    pieces: Any

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not isinstance(self.pieces, Sequence | np.ndarray) or len(self.pieces) == 0:
            raise InvalidInput(
                f"{name} needs a list of bounds, numbers or AffineBound, got {self.pieces!r}",
                code="type",
            )
        nested = [piece for piece in self.pieces if isinstance(piece, _Pieces)]
        if nested:
            raise InvalidInput(
                f"{name} holds numbers and AffineBound only, got {type(nested[0]).__name__} among "
                "its pieces; give all pieces in one list",
                code="type",
            )


class Largest(_Pieces):
    """The largest of several bounds, numbers or `AffineBound`, for rules with "<="."""


class Smallest(_Pieces):
    """The smallest of several bounds, numbers or `AffineBound`, for rules with ">="."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Of L rules, each with K pieces: `offset` (K, L), `slope` (K, L, d)."""

    offset: Array
    slope: Array
    largest: bool

    def check(self, count: int, input_size: int) -> None:
        if self.slope.shape[1:] != (count, input_size):
            raise InvalidInput(
                f"the bound is for {self.slope.shape[1]} rules and {self.slope.shape[2]} features, "
                f"the rule has {count} and {input_size}",
                code="shape",
            )

    def at(self, inputs: Array) -> Array:
        """(m, d) -> (m, L)."""
        each = self.offset[:, None] + np.einsum("kld,md->kml", self.slope, inputs)
        return np.asarray(each.max(axis=0) if self.largest else each.min(axis=0))


def depends_on_input(bound: Any) -> bool:
    """Whether this bound is one of those above, not plain numbers."""
    return isinstance(bound, AffineBound | _Pieces)


def build_bounds(bound: Any, sense: str, *, count: int | None, input_size: int) -> Bounds:
    """A bound that `depends_on_input` on the input, for rules of this sense; `count` None: as many
    as given.

    "<=" the largest of pieces and ">=" the smallest leave a choice at each input. The other way
    round, all pieces must hold: those are rules of their own.
    """
    if isinstance(bound, _Pieces):
        wanted = {"<=": Largest, ">=": Smallest}.get(sense)
        if wanted is None or not isinstance(bound, wanted):
            raise InvalidInput(
                f'"{sense}" {type(bound).__name__} of several bounds is no rule of one kind: '
                '"<=" takes Largest and ">=" takes Smallest; where every piece must hold, give '
                "each as a rule of its own",
                code="unsupported",
            )
    given = list(bound.pieces) if isinstance(bound, _Pieces) else [bound]
    pieces = [
        p if isinstance(p, AffineBound) else AffineBound(p, np.zeros(input_size)) for p in given
    ]
    if count is None:
        count = max(max(np.size(p.offset), len(np.atleast_2d(p.slope))) for p in pieces)
    for piece in pieces:
        _check_piece(piece, count, input_size)
    return Bounds(
        np.stack([np.broadcast_to(p.offset, (count,)) for p in pieces]),
        np.stack([np.broadcast_to(p.slope, (count, input_size)) for p in pieces]),
        sense == "<=",
    )


def _check_piece(piece: AffineBound, count: int, input_size: int) -> None:
    if piece.slope.shape[-1] != input_size:
        raise InvalidInput(
            f"the slope of an AffineBound has {piece.slope.shape[-1]} entries for each rule, the "
            f"inputs have {input_size} features",
            code="shape",
        )
    shapes = {"offset": piece.offset.shape, "slope": piece.slope.shape[:-1]}
    for name, shape in shapes.items():
        if shape not in ((), (count,), (1,)):
            raise InvalidInput(
                f"the {name} of an AffineBound is for {shape[0]} rules, the coefficients for "
                f"{count}; give one for all rules or one for each",
                code="shape",
            )
