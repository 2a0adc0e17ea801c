"""Small quadratic programs by Clarabel: optima, projections and affine rules to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from cg4ai.data import Array
from cg4ai.errors import SolverFailure

SETTLED = ("Solved", "AlmostSolved")


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """`|root (y - centre)| <= radius`."""

    root: Array
    centre: Array
    radius: float


@dataclass(frozen=True, eq=False)
class Cones:
    """`equality y = values`, `inequality y <= limits`, and y in an ellipsoid, where given."""

    equality: Any
    inequality: Any
    ellipsoid: Ellipsoid | None = None

    def minimise(self, curvature: Any, slope: Array, values: Array, limits: Array) -> Array:
        """The y that minimises `y' curvature y / 2 + slope y`; SolverFailure if there is none."""
        kinds = [clarabel.ZeroConeT(len(values)), clarabel.NonnegativeConeT(len(limits))]
        blocks, sides = [self.equality, self.inequality], [values, limits]
        if self.ellipsoid is not None:
            own = self.ellipsoid
            kinds.append(clarabel.SecondOrderConeT(len(own.root) + 1))
            blocks.append(np.vstack([np.zeros((1, own.root.shape[1])), -own.root]))
            sides.append(np.concatenate([[own.radius], -own.root @ own.centre]))
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        solver = clarabel.DefaultSolver(
            sparse.triu(sparse.csc_matrix(curvature), format="csc"),
            slope,
            sparse.csc_matrix(sparse.vstack([sparse.csc_matrix(block) for block in blocks])),
            np.concatenate(sides),
            kinds,
            settings,
        )
        solution = solver.solve()
        if str(solution.status) not in SETTLED:
            raise SolverFailure(f"Clarabel ended with {solution.status} on a quadratic program")
        return np.asarray(solution.x)
