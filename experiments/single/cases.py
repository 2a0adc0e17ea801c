"""Random problems over finite sets of members, and their best single model by brute force."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import torch

from cg4ai import Problem, Settings
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.members.networks import NetworkMembers
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.records import Array, IntArray
from cg4ai.rules import Box, Linear, Requirement
from cg4ai.rules.rows import Rows

SETTINGS = Settings(
    row_margin=0.0, guarantee="attacked", single_model=True, final_weights="vertex", epsilon=1e-9
)
MET = 1e-7


@dataclass(frozen=True)
class Pieces:
    """The epigraph of a case: linear functions of the outputs, the same at every input."""

    slopes: Array  # (pieces, r)

    @property
    def count(self) -> int:
        return len(self.slopes)

    def values(self, inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        return outputs @ torch.as_tensor(self.slopes, dtype=outputs.dtype).T

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        return self.slopes[which]


@dataclass(frozen=True)
class Case:
    """A problem with all its members (count) and the block of each."""

    problem: Problem
    members: NetworkMembers
    blocks: IntArray


@dataclass(frozen=True)
class Best:
    """The least objective of a choice that meets all rows; None: no choice does."""

    objective: float | None


def random_case(seed: int) -> Case:
    """One to three blocks, 2 to 12 members each, rows that some, or no, choice meets."""
    made = np.random.default_rng(seed)
    count = int(made.integers(1, 4))
    sizes = made.integers(1, 3, count)
    ends = np.cumsum([0, *sizes])
    layout = Layout(tuple(np.arange(a, b) for a, b in pairwise(ends)))
    r, width, d = int(ends[-1]), int(sizes.max()), 2
    blocks = np.repeat(np.arange(count), made.integers(2, 13 if count < 3 else 8, count))
    members = affine(
        made.normal(size=(len(blocks), d, width)), made.normal(size=(len(blocks), width))
    )
    inputs = made.normal(size=(6, d))
    kind = ("average", "mixture", "epigraph")[int(made.integers(3))]
    objective: Supervised | Epigraph
    if kind == "epigraph":
        objective = Epigraph(inputs, Pieces(made.normal(size=(3, r))), floor=-10.0)
    else:
        labels = made.normal(size=(6, r))
        objective = Supervised(inputs, labels, "squared", kind)  # type: ignore[arg-type]
    rules = [
        Linear(made.normal(size=(2, d)), made.normal(size=(1, r)), float(made.normal() - 0.7))
        for _ in range(int(made.integers(1, 4)))
    ]
    if made.random() < 0.2:
        rules.append(Linear(Box([-1.0, -1.0], [1.0, 1.0]), made.normal(size=(1, r)), -3.0))
    return Case(
        Problem(objective, rules, [FinitePricer([(members, blocks)])], layout), members, blocks
    )


def brute_force(case: Case) -> Best:
    """Every choice of one member per block, judged by its own predictions."""
    problem, layout = case.problem, case.problem.layout
    own = [np.flatnonzero(case.blocks == block).tolist() for block in range(len(layout))]
    best = np.inf
    for chosen in product(*own):
        if all(_kept(case, rule, chosen) for rule in problem.requirements):
            best = min(best, _objective(case, chosen))
    return Best(None if best == np.inf else float(best))


def _outputs(case: Case, chosen: tuple[int, ...], inputs: Array) -> Array:
    layout = case.problem.layout
    result = np.empty((len(inputs), layout.output_size))
    raw = case.members.take(np.array(chosen)).outputs(torch.as_tensor(inputs)).numpy()
    for block, positions in enumerate(layout.blocks):
        result[:, positions] = raw[block][:, : len(positions)]
    return result


def _kept(case: Case, rule: Requirement, chosen: tuple[int, ...]) -> bool:
    region = rule.region
    rows: Rows | None
    if isinstance(region, Box):  # affine in the input: worst at a corner
        inputs = np.array(list(product(*zip(region.lower, region.upper, strict=True))))
        which = np.zeros(len(inputs), np.int64)
        rows = rule.rows_at(inputs, which, 0)
    else:
        rows = rule.rows(0)
    assert rows is not None
    values = rows.values(torch.as_tensor(_outputs(case, chosen, rows.inputs))).numpy()
    return bool(np.all(values >= rows.bounds - MET))


def _objective(case: Case, chosen: tuple[int, ...]) -> float:
    objective = case.problem.objective
    outputs = _outputs(case, chosen, objective.inputs)
    if isinstance(objective, Supervised):
        return float(((outputs - objective.targets) ** 2).sum(1).mean())
    assert isinstance(objective.pieces, Pieces)
    return float((outputs @ objective.pieces.slopes.T).max(1).mean())
