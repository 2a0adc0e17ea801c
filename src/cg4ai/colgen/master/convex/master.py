"""The convex master: the `mixture` objective, a convex loss of the mixture itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.colgen.master import DUMMY_MULTIPLE, OWN_SLACK
from cg4ai.colgen.master.convex.program import (
    Loss,
    MixtureLoss,
    Program,
    check_table,
    compute_tolerance_units,
    compute_zero_loss,
)
from cg4ai.colgen.master.convex.sequential import minimise
from cg4ai.colgen.master.table import choose_objective_unit, choose_penalty_factor
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, Duals, IntArray, MasterSolution


class ConvexMaster:
    """The master whose objective is a convex loss of the mixture; twin of `LinearMaster`.

    minimise  loss(sum_i weight_i Z_i) + penalty * (slacks + DUMMY_MULTIPLE * dummies)
    s.t.      for each block: sum of its weights + dummy = 1
              for each row:   sum_i coefficient_i weight_i + slack >= bound

    The reduced cost of a member is `<gradient(), Z> - sum beta x coefficient - gamma[block]`. At a
    solution it is >= 0 for every member of the master and 0, up to `gap`, where the weight is
    positive: weights x reduced costs, duals x surplus and so on are all >= 0 and sum to `gap`.

    `tolerance` is the relative gap aimed at, and what a row may lack (x (1 + |bound|)) without
    charge. Rows enter the solver only when violated; solving is deterministic and starts from the
    previous weights. `usual` is the size of the loss that the data suggest,
    `row_size` that of bounds of rows.
    """

    def __init__(
        self,
        blocks: int,
        loss: Loss,
        *,
        penalty: float = 10.0,
        penalty_growth: float = 10.0,
        penalty_limit: float = 1e8,
        tolerance: float = 1e-9,
        usual: float | None = None,
        row_size: float = 1.0,
    ) -> None:
        if blocks < 1 or not 0 < penalty <= penalty_limit or penalty_growth <= 1 or tolerance <= 0:
            raise InvalidInput(
                "a master needs blocks >= 1, 0 < penalty <= penalty_limit, penalty_growth > 1 and "
                f"tolerance > 0, got {blocks}, {penalty}, {penalty_limit}, {penalty_growth} and "
                f"{tolerance}",
                code="range",
            )
        self.n_blocks = blocks
        self.penalty = penalty
        self._loss = loss
        self._growth, self._limit, self._tolerance = penalty_growth, penalty_limit, tolerance
        self._slack_only = False
        self._usual, self._row_size = usual, row_size
        self._unit: float | None = None  # not known before there is a loss
        self._outputs: Tensor | None = None
        self._blocks: IntArray = np.empty(0, np.int64)
        self._coefficients: Array = np.empty((0, 0))
        self._bounds: Array = np.empty(0)
        self._slack: IntArray = np.empty(0, np.int64)
        self._weights: Array = np.empty(0)
        self._beta: Array = np.empty(0)
        self._active: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._gradient: Array | None = None
        self._gap = np.inf

    @property
    def n_rows(self) -> int:
        return len(self._bounds)

    @property
    def n_columns(self) -> int:
        return len(self._blocks)

    @property
    def coefficients(self) -> Array:
        """The whole table (n_rows, n_columns); not to be written to."""
        return self._coefficients

    @property
    def bounds(self) -> Array:
        return self._bounds

    @property
    def slack_numbers(self) -> IntArray:
        return self._slack

    @property
    def gap(self) -> float:
        """Certified: the last `penalised` is at most this far above the least; inf if unsolved."""
        return self._gap

    @property
    def slack_only(self) -> bool:
        """Whether slack alone is minimised."""
        return self._slack_only

    @property
    def unit(self) -> float:
        """The unit in which the loss is minimised and penalties are stated, a power of two."""
        return 1.0 if self._unit is None else self._unit

    @property
    def is_solved(self) -> bool:
        """Whether there is a solution, whose gradient prices members."""
        return self._gradient is not None

    def gradient(self) -> Array:
        """d loss / d outputs of the mixture (n, r) at the last solution; 0 if slack alone counts.

        A candidate with outputs Z (n, r) costs `<gradient, Z>`.
        """
        if self._gradient is None:
            raise InvalidInput(
                "a gradient is known only after solve(); call it first", code="unsupported"
            )
        return self._gradient

    def add_columns(self, outputs: Tensor | Array, blocks: IntArray, coefficients: Array) -> None:
        """Members with `outputs` (c, n, r) in all r outputs, `coefficients` (n_rows, c).

        With c = 0 this only tells the master n and r, which it must know to be solved.
        """
        new = torch.as_tensor(outputs, dtype=torch.float64).detach()
        blocks = np.asarray(blocks, dtype=np.int64)
        coefficients = np.asarray(coefficients, dtype=np.float64)
        count = len(blocks)
        shape = new.shape[1:] if self._outputs is None else self._outputs.shape[1:]
        if new.ndim != 3 or new.shape != (count, *shape):
            raise InvalidInput(
                f"{count} new columns need outputs of shape {(count, *shape)}, "
                f"got {tuple(new.shape)}; embed each member's outputs in all outputs",
                code="shape",
            )
        if count and (blocks.min() < 0 or blocks.max() >= self.n_blocks):
            raise InvalidInput(
                f"blocks must lie in 0..{self.n_blocks - 1}, got {blocks.min()}..{blocks.max()}",
                code="range",
            )
        check_table("coefficients", coefficients, (self.n_rows, count))
        if not bool(torch.isfinite(new).all()):
            raise InvalidInput(
                "outputs of new columns must be finite, got NaN or infinity", code="not-finite"
            )
        self._outputs = new if self._outputs is None else torch.cat([self._outputs, new])
        self._blocks = np.concatenate([self._blocks, blocks])
        self._coefficients = np.hstack([self._coefficients, coefficients])
        self._weights = np.concatenate([self._weights, np.zeros(count)])

    def add_rows(
        self,
        coefficients: Array,
        bounds: Array,
        slack: IntArray,
        epigraph: IntArray | None = None,
    ) -> None:
        """`coefficients` (k, n_columns), `bounds` (k,), `slack` (k,): -1 own, >= 0 shared.

        `epigraph` is there for the likeness with `LinearMaster`: a convex master has none.
        """
        if epigraph is not None and np.any(np.asarray(epigraph) >= 0):
            raise InvalidInput(
                "a convex master has no epigraph variables, got rows that name one; "
                "state such an objective with LinearMaster",
                code="unsupported",
            )
        coefficients = np.asarray(coefficients, dtype=np.float64)
        bounds = np.asarray(bounds, dtype=np.float64)
        slack = np.asarray(slack, dtype=np.int64)
        count = len(bounds)
        check_table("coefficients", coefficients, (count, self.n_columns))
        check_table("bounds", bounds, (count,))
        if slack.shape != (count,) or (count and slack.min() < OWN_SLACK):
            raise InvalidInput(
                f"slack needs one number per row ({count}), -1 for its own or the number >= 0 of "
                f"a shared one, got {slack.tolist()[:10]} with shape {slack.shape}",
                code="shape",
            )
        self._coefficients = np.vstack([self._coefficients, coefficients])
        self._bounds = np.concatenate([self._bounds, bounds])
        self._slack = np.concatenate([self._slack, slack])
        self._beta = np.concatenate([self._beta, np.zeros(count)])
        self._active = np.concatenate([self._active, np.zeros(count, np.bool_)])

    def usual_cost(self) -> float:
        """The size of the loss where all members of a block weigh the same."""
        assert self._outputs is not None
        weights = _spread(np.zeros(len(self._blocks)), self._blocks, self.n_blocks)
        return abs(MixtureLoss(self._loss, self._outputs).output_gradient(weights)[0])

    def raise_penalty(self) -> bool:
        """Multiply the penalty, up to its limit; False if it was there already."""
        if self.penalty >= self._limit:
            return False
        self.penalty = min(self.penalty * self._growth, self._limit)
        return True

    def minimise_slack(self, on: bool) -> None:
        """Switch the phase in which the loss is left out, slack and dummy cost 1 each."""
        self._slack_only = on

    def solve(self) -> MasterSolution:
        """Minimise over all columns and rows; see `gap` for how well that was achieved.

        While slack is minimised, `objective` is 0 and `penalised` is the sum of all slack.
        """
        if self._outputs is None:
            raise InvalidInput(
                "the master knows no outputs yet; call add_columns before solve", code="unsupported"
            )
        if self._unit is None and not self._slack_only:
            self._unit = choose_objective_unit(np.array([self.usual_cost()]), self._usual)
            factor = choose_penalty_factor(self.unit, self._usual, self._row_size)
            self._limit, self.penalty = factor * self._limit, factor * self.penalty
        unit = 1.0 if self._slack_only else self.unit
        objective = MixtureLoss(
            compute_zero_loss if self._slack_only else self._scaled_loss, self._outputs
        )
        program = self._program(objective)
        result = minimise(
            program,
            _spread(self._weights, self._blocks, self.n_blocks),
            beta=self._beta,
            active=self._active,
            tolerance=self._tolerance,
        )
        point, weights = result.point, result.point.weights
        values = self._coefficients @ weights
        self._weights, self._beta = weights, point.duals.rows
        # Rows near their bound stay in the solver's sight; the others left it for good reason.
        near = values - self._bounds < 1e-6 * (1.0 + np.abs(self._bounds))
        self._active = result.active & (near | (self._beta > 0))
        self._gradient = unit * objective.output_gradient(weights)[1].cpu().numpy()
        self._gap = unit * max(0.0, point.gap)
        return MasterSolution(
            weights=weights.copy(),
            duals=Duals(unit * point.duals.rows, unit * point.duals.blocks),
            objective=unit * point.value,
            penalised=unit * point.merit,
            slack=np.maximum(0.0, self._bounds - values),
            dummy=np.maximum(0.0, 1.0 - program.block_sums(weights)),
            active_rows=int(result.active.sum()),
            active_columns=int(np.count_nonzero(weights)),
            solver_iterations=result.iterations,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """What the next solve starts from; rows and columns are the caller's to keep."""
        return {
            "weights": self._weights.copy(),
            "row_duals": self._beta.copy(),
            "active": self._active.copy(),
            "penalty": np.array(self.penalty),
            "slack_only": np.array(self._slack_only),
            "unit": np.array(np.nan if self._unit is None else self._unit),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state()`, after the same rows and columns have been added again."""
        sizes = (len(state["weights"]), len(state["row_duals"]), len(state["active"]))
        if sizes != (self.n_columns, self.n_rows, self.n_rows):
            raise InvalidInput(
                f"the state is of a master with {sizes[0]} columns and {sizes[1]} rows, this one "
                f"has {self.n_columns} and {self.n_rows}; add the same ones before restore",
                code="shape",
            )
        self._weights = np.array(state["weights"], dtype=np.float64)
        self._beta = np.array(state["row_duals"], dtype=np.float64)
        self._active = np.array(state["active"], dtype=np.bool_)
        self.penalty = float(state["penalty"])
        self._slack_only = bool(state["slack_only"])
        unit = float(state["unit"])
        self._unit = None if np.isnan(unit) else unit
        self._limit *= choose_penalty_factor(self.unit, self._usual, self._row_size)
        self._gradient, self._gap = None, np.inf

    def _scaled_loss(self, outputs: Tensor) -> Tensor:
        loss = self._loss(outputs)
        return loss if self.unit == 1.0 else loss / self.unit

    def _program(self, objective: MixtureLoss) -> Program:
        return Program(
            objective=objective,
            coefficients=self._coefficients,
            bounds=self._bounds,
            groups=_slack_groups(self._slack),
            blocks=self._blocks,
            n_blocks=self.n_blocks,
            row_tolerance=self._tolerance * compute_tolerance_units(self._bounds),
            penalty=1.0 if self._slack_only else self.penalty,
            dummy_price=(1.0 if self._slack_only else self.penalty) * DUMMY_MULTIPLE,
        )


def _slack_groups(slack: IntArray) -> IntArray:
    """Number the slack variables from 0: one per row with -1, one per shared number."""
    own = np.flatnonzero(slack < 0)
    _, groups = np.unique(np.where(slack < 0, 0, slack + 1), return_inverse=True)
    groups = groups.astype(np.int64) + len(own)
    groups[own] = np.arange(len(own))
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _spread(weights: Array, blocks: IntArray, n_blocks: int) -> Array:
    """The same weights, equal ones in blocks that have none: far from the edges of log losses."""
    empty = np.bincount(blocks, weights, minlength=n_blocks) <= 0
    counts = np.bincount(blocks, minlength=n_blocks)
    return np.where(empty[blocks], 1.0 / counts[blocks], weights)
