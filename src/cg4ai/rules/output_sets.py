"""`Range`, `Ordered`, `SumTo`: one convex set of outputs, the same at every input.

Members whose outputs are mapped into the set keep these rules whatever they learn, and so do their
mixtures, since the set is convex (`members.output_sets`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import Array, IntArray
from cg4ai.rules.requirement import RequirementDefaults
from cg4ai.rules.rows import Rows

Outputs = tuple[int, ...]
ROUNDING = 1e-12  # relative: by which a total may miss the sum of all ends


@dataclass(frozen=True)
class Total:
    """These outputs sum to `value`."""

    outputs: Outputs
    value: float


@dataclass(frozen=True, eq=False)
class OutputSet:
    """Outputs in [`low`, `high`], (r,) each, nondecreasing along each chain, with these totals.

    Ends may be infinite. Chains have no output in common, and totals neither; a chain lies in one
    total or in none. Ends are in order along each chain (see `join_output_rules`), so that the set
    is empty only where an end or a total says so.
    """

    low: Array
    high: Array
    chains: tuple[Outputs, ...] = ()
    totals: tuple[Total, ...] = ()

    @property
    def output_size(self) -> int:
        return len(self.low)

    @cached_property
    def rows(self) -> tuple[Array, Array]:
        """The set as `matrix @ y >= bound`, (m, r) and (m,); a total is two rows."""
        unit = np.eye(self.output_size)
        pairs = [pair for chain in self.chains for pair in pairwise(chain)]
        sums = np.array([unit[list(one.outputs)].sum(0) for one in self.totals]).reshape(
            -1, self.output_size
        )
        values = np.array([one.value for one in self.totals])
        above, below = np.isfinite(self.low), np.isfinite(self.high)
        rising = np.array([unit[b] - unit[a] for a, b in pairs]).reshape(-1, self.output_size)
        matrix = np.concatenate([unit[above], -unit[below], rising, sums, -sums])
        bound = np.concatenate(
            [self.low[above], -self.high[below], np.zeros(len(pairs)), values, -values]
        )
        return matrix, bound

    def validate(self) -> OutputSet:
        """Itself, if all that is said of it holds; for sets from files."""
        ended = np.isfinite(self.low).any() or np.isfinite(self.high).any()
        rules: list[OutputRule] = [Range(self.low, self.high)] if ended else []
        rules += [Ordered(chain) for chain in self.chains]
        rules += [SumTo(one.value, one.outputs, low=None) for one in self.totals]
        if join_output_rules(rules, self.output_size).digest != self.digest:
            raise InvalidInput(
                "an output set has ends, chains or totals that are not in order", code="bad-file"
            )
        return self

    @cached_property
    def tied_outputs(self) -> tuple[Outputs, ...]:
        """Sets of outputs of which one cannot be moved alone: chains and totals."""
        return (*self.chains, *(one.outputs for one in self.totals))

    @cached_property
    def digest(self) -> str:
        """Equal for sets of the same numbers."""
        total = hashlib.sha256(repr((self.chains, self.totals)).encode())
        for array in (self.low, self.high):
            total.update(np.ascontiguousarray(array + 0.0).tobytes())
        return total.hexdigest()


class _OnOutputs:
    """Outputs (positions or names) that a rule is about: all, unless a field says which."""

    outputs: Any = None


@dataclass(frozen=True, eq=False)
class OutputRule(RequirementDefaults, _OnOutputs):
    """What rules on outputs at every input share: they name no inputs and have no rows."""

    name: str = field(default="", kw_only=True)

    inputs: ClassVar[None] = None
    region: ClassVar[None] = None
    separator: ClassVar[None] = None
    slack: ClassVar[str] = "row"
    input_size: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidInput(
                f"the name of a requirement must be text, got {self.name!r}", code="type"
            )
        object.__setattr__(self, "name", self.name or type(self).__name__)
        if self.outputs is not None:
            object.__setattr__(self, "outputs", _positions(self.outputs, self.name))

    def resolve_names(self, features: Sequence[str], outputs: Sequence[str]) -> Self:
        """The same by positions, where outputs have these names; those of features say nothing."""
        given = self.outputs
        if given is None or not any(isinstance(one, str) for one in given):
            return self
        known = list(outputs)
        for one in given:
            if isinstance(one, str) and one not in known:
                raise InvalidInput(
                    f"{self.name} names the output {one!r}{did_you_mean(one, known)}; there are: "
                    f"{', '.join(known[:10]) or 'none with names, give positions'}",
                    code="unknown-name",
                )
        found = [known.index(one) if isinstance(one, str) else one for one in given]
        changes: dict[str, Any] = {"outputs": found}
        return replace(self, **changes)

    def part(self, output_size: int) -> OutputSet:
        """The set of outputs (r,) that keep this rule, not yet looked at as a whole."""
        raise NotImplementedError

    def output_set(self, output_size: int) -> OutputSet:
        """The set of outputs (r,) that keep this rule."""
        return join_output_rules([self], output_size)

    def check(self, input_size: int, output_size: int) -> None:
        self.output_set(output_size)

    @property
    def stated_width(self) -> int | None:
        """How many outputs it speaks of; None where it does not say."""
        return None

    @property
    def is_pointwise(self) -> bool:
        return True

    def slack_at(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        matrix, bound = map(torch.as_tensor, self.output_set(outputs.shape[1]).rows)
        return (outputs @ matrix.mT - bound).amin(1)

    def compute_violation(self, inputs: Array, outputs: Array) -> Array:
        """(n, d), (n, r) -> (n,): by how much the worst row of the set is missed, at least 0."""
        matrix, bound = self.output_set(outputs.shape[1]).rows
        return np.asarray((bound - outputs @ matrix.T).max(1, initial=0.0))

    @property
    def digest(self) -> str:
        """What tells rules apart."""
        stated = [(one, repr(getattr(self, one))) for one in self.__dataclass_fields__]
        return hashlib.sha256(repr([type(self).__name__, *stated]).encode()).hexdigest()

    def require_inputs(self) -> NoReturn:
        raise InvalidInput(
            f"{self.name} lists no inputs to audit: members keep it by construction, and these "
            "members were not built for it; train with the rule, or state it by Linear over a Box "
            "or at listed inputs",
            code="unsupported",
        )

    def rows(self, number: int) -> Rows | None:
        return None

    def rows_at(self, inputs: Array, which: IntArray, number: int) -> Rows:
        self.require_inputs()

    def violations(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        self.require_inputs()

    def describe(self, rows: Rows, j: int) -> str:
        self.require_inputs()

    def _chosen(self, output_size: int) -> Outputs:
        """The outputs that are meant, all of them by default."""
        outputs = self.outputs
        if outputs is None:
            return tuple(range(output_size))
        unknown = [one for one in outputs if isinstance(one, str) or one >= output_size]
        if unknown:
            raise InvalidInput(
                f"{self.name} names output {unknown[0]!r}, the predictor has {output_size}, "
                "counted from 0",
                code="unknown-name",
            )
        return tuple(outputs)


@dataclass(frozen=True, eq=False)
class Range(OutputRule):
    """`low <= f(x) <= high` at every input, kept by how members are built.

    Each end is one number, one for each of the outputs, or None where there is none. `outputs` are
    positions or, where these have some, names; all by default.
    """

    low: Any
    high: Any
    outputs: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, none in (("low", -np.inf), ("high", np.inf)):
            value = getattr(self, name)
            object.__setattr__(self, name, _ends(none if value is None else value, name, self.name))
        low, high = np.broadcast_arrays(*self._fitting())
        if (low == -np.inf).all() and (high == np.inf).all():
            raise InvalidInput(
                f"{self.name} has neither low nor high; give one of them, or no rule",
                code="missing-argument",
            )
        crossed = np.flatnonzero(~(low <= high))
        if len(crossed) or (low == np.inf).any() or (high == -np.inf).any():
            worst = int(crossed[0]) if len(crossed) else 0
            raise InvalidInput(
                f"{self.name} has no numbers between low {low.flat[worst]:g} and high "
                f"{high.flat[worst]:g}; swap or correct them",
                code="range",
            )

    def _fitting(self) -> tuple[Array, Array]:
        """Both ends, of sizes that go together and with the outputs named."""
        sizes = {len(one) for one in (self.low, self.high) if len(one) > 1}
        if self.outputs is not None and sizes:
            sizes.add(len(self.outputs))
        if len(sizes) > 1:
            raise InvalidInput(
                f"{self.name} has {len(self.low)} low and {len(self.high)} high ends"
                + ("" if self.outputs is None else f" for {len(self.outputs)} outputs")
                + "; give one number each, or as many as outputs",
                code="shape",
            )
        return self.low, self.high

    @property
    def stated_width(self) -> int | None:
        size = max(len(self.low), len(self.high))
        return size if size > 1 and self.outputs is None else None

    def part(self, output_size: int) -> OutputSet:
        chosen = list(self._chosen(output_size))
        low, high = np.full(output_size, -np.inf), np.full(output_size, np.inf)
        for name, end in (("low", low), ("high", high)):
            given = getattr(self, name)
            if len(given) not in (1, len(chosen)):
                raise InvalidInput(
                    f"{self.name} has {len(given)} {name} ends for {len(chosen)} outputs; give one "
                    "number, or as many as outputs",
                    code="shape",
                )
            end[chosen] = given
        return OutputSet(low, high)


@dataclass(frozen=True, eq=False)
class Ordered(OutputRule):
    """Outputs do not fall in the order given, at every input: `f_a(x) <= f_b(x) <= ...`.

    `outputs` are positions, all in their own order by default. Quantiles that do not cross are of
    this kind.
    """

    outputs: Any = None

    def part(self, output_size: int) -> OutputSet:
        chain = self._chosen(output_size)
        if len(chain) < 2:
            raise InvalidInput(
                f"{self.name} needs two outputs or more to order, got {len(chain)}; leave it out"
            )
        ends = np.full(output_size, np.inf)
        return OutputSet(-ends, ends, (chain,))


@dataclass(frozen=True, eq=False)
class SumTo(OutputRule):
    """The outputs sum to `total` at every input, none below `low` (None: no such end).

    `outputs` are positions, all by default.
    """

    total: Any
    outputs: Any = None
    low: Any = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        total = _ends(self.total, "total", self.name)
        low = _ends(-np.inf if self.low is None else self.low, "low", self.name)
        if len(total) > 1 or not np.isfinite(total).all() or len(low) > 1:
            raise InvalidInput(
                f"{self.name} needs one finite number as total and one or none as low, got "
                f"{self.total!r} and {self.low!r}",
                code="not-finite",
            )
        object.__setattr__(self, "total", float(total[0]))
        object.__setattr__(self, "low", float(low[0]))

    def part(self, output_size: int) -> OutputSet:
        chosen = self._chosen(output_size)
        low, high = np.full(output_size, -np.inf), np.full(output_size, np.inf)
        low[list(chosen)] = self.low
        return OutputSet(low, high, (), (Total(chosen, self.total),))


def join_output_rules(rules: Sequence[OutputRule], output_size: int) -> OutputSet:
    """All rules as one set, with ends in order along chains; InvalidInput if there is no such set.

    Orders must make disjoint chains, each whole in a total or outside all of them, and totals must
    have no output in common: for those there is a map into the set in closed form.
    """
    parts = [rule.part(output_size) for rule in rules]
    names = " and ".join(rule.name for rule in rules)
    chains = _chains([pair for one in parts for chain in one.chains for pair in pairwise(chain)])
    totals = tuple({one for part in parts for one in part.totals})
    low, high = np.max([one.low for one in parts], 0), np.min([one.high for one in parts], 0)
    for chain in chains:
        own = list(chain)
        low[own] = np.maximum.accumulate(low[own])
        high[own] = np.minimum.accumulate(high[own[::-1]])[::-1]
    _refuse_empty(low, high, chains, names)
    made = OutputSet(low, high, chains, _disjoint(totals, chains))
    for one in made.totals:
        least, most = (float(end[list(one.outputs)].sum()) for end in (low, high))
        room = ROUNDING * (1 + abs(one.value))
        if not least - room <= one.value <= most + room:
            raise InvalidInput(
                f"{names}: outputs {_listed(one.outputs)} shall sum to {one.value:g}, but their "
                f"ranges allow sums in [{least:g}, {most:g}] alone; change the total or the ranges",
                code="infeasible",
            )
    return made


def _chains(pairs: Sequence[tuple[int, int]]) -> tuple[Outputs, ...]:
    """Chains that say the same as all pairs (lower, upper)."""
    graph: dict[int, set[int]] = {}
    for lower, upper in pairs:
        graph.setdefault(upper, set()).add(lower)
        graph.setdefault(lower, set())
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = _listed(sorted(set(error.args[1])))
        raise InvalidInput(
            f"Ordered puts outputs {circle} in a circle, so that they would be equal; correct the "
            "order",
            code="infeasible",
        ) from error
    chains: list[list[int]] = []
    for one in order:
        below = graph[one]
        ends = [chain for chain in chains if chain[-1] in below]
        known = [chain for chain in chains if below & set(chain)]
        if len(known) > 1 or len(ends) != len(known):
            raise InvalidInput(
                f"Ordered rules put outputs {_listed(sorted(below))} below output {one} but not "
                "into one line with it; state them as Linear over a Box, or as one chain",
                code="unsupported",
            )
        if ends:
            ends[0].append(one)
        else:
            chains.append([one])
    return tuple(sorted(tuple(chain) for chain in chains))


def _refuse_empty(low: Array, high: Array, chains: Sequence[Outputs], names: str) -> None:
    crossed = np.flatnonzero(low > high)
    if not len(crossed):
        return
    one = int(crossed[0])
    why = "; along an order an output has the ends of those before and behind it, too"
    raise InvalidInput(
        f"{names} contradict each other: output {one} would be at least {low[one]:g} and at most "
        f"{high[one]:g}{why if any(one in chain for chain in chains) else ''}",
        code="infeasible",
    )


def _disjoint(totals: Sequence[Total], chains: Sequence[Outputs]) -> tuple[Total, ...]:
    """The totals, sorted; InvalidInput if they share outputs, or with a part of a chain."""
    found = sorted({replace(one, outputs=tuple(sorted(one.outputs))) for one in totals}, key=_first)
    owner: dict[int, Total] = {}
    for one in found:
        for output in one.outputs:
            if output in owner:
                raise InvalidInput(
                    f"output {output} is in two sums, of {_listed(owner[output].outputs)} to "
                    f"{owner[output].value:g} and of {_listed(one.outputs)} to {one.value:g}; "
                    "state them as one Equality instead",
                    code="conflict",
                )
            owner[output] = one
    for chain in chains:
        if len({owner.get(output) for output in chain}) > 1:
            raise InvalidInput(
                f"outputs {_listed(chain)} are ordered, but not all of them are in the same SumTo; "
                "order all or none of the outputs of a sum, or use Equality and Linear over a Box",
                code="unsupported",
            )
    return tuple(found)


def _first(one: Total) -> tuple[Outputs, float]:
    return one.outputs, one.value


def _positions(value: Any, name: str) -> tuple[Any, ...]:
    """Different output positions >= 0, or names."""
    several = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
    given = list(value) if several else [value]
    for one in given:
        if isinstance(one, str):
            continue
        if isinstance(one, bool) or not isinstance(one, int | np.integer) or one < 0:
            raise InvalidInput(
                f"the outputs of {name} are names or positions 0, 1, ..., got {one!r} among them",
                code="type",
            )
    if not given or len(set(given)) < len(given):
        raise InvalidInput(f"{name} needs one output or more, each once, got {given}")
    return tuple(str(one) if isinstance(one, str) else int(one) for one in given)


def _ends(value: Any, what: str, name: str) -> Array:
    """(1,) or (k,) numbers, which may be infinite."""
    try:
        found = np.atleast_1d(np.array(value, np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{what} of {name} must be numbers, got {value!r:.80}", code="type"
        ) from error
    if found.ndim != 1 or not len(found) or np.isnan(found).any():
        raise InvalidInput(
            f"{what} of {name} must be one number or several, got {value!r:.80}", code="type"
        )
    return found


def _listed(outputs: Sequence[int]) -> str:
    return ", ".join(map(str, outputs[:10])) + (", ..." if len(outputs) > 10 else "")
