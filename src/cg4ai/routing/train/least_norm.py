"""The least-norm split among equally good ones: the last step towards a canonical label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from cg4ai.data import Array, IntArray
from cg4ai.errors import SolverFailure

SLACK = 1e-9  # rounding that the inequalities of a face may be off by


def least_norm(
    split: Array,
    path_demand: IntArray,
    *,
    free: NDArray[np.bool_],
    loads: Array,
    bound: float,
    tight: NDArray[np.bool_],
) -> Array:
    """The split of least sum of squares on the optimal face that contains `split` (P,).

    By complementary slackness the face lets only `free` (P,) paths carry flow, of which `tight`
    (A,) links keep their load exactly and the others stay within `bound`. `loads` (P, A) is what
    a whole demand on a path adds to each link.
    """
    sizes = np.bincount(path_demand, free)[path_demand]
    moving = np.flatnonzero(free & (sizes > 1))
    if len(moving) == 0:
        return split
    demands = np.unique(path_demand[moving])
    sums = (path_demand[moving] == demands[:, None]).astype(np.float64)
    own = loads[moving].T
    fixed = np.vstack([sums, own[tight]])
    # A face of one point needs no program, and most faces are: full rank means nothing can move.
    _, singular, directions = np.linalg.svd(fixed)
    rank = int(np.sum(singular > 1e-9))
    if rank == len(moving):
        return split
    # split + kernel z keeps every equation, so only inequalities remain to be stated.
    kernel = directions[rank:].T
    start = split[moving]
    others = own[~tight]
    room = np.maximum(bound - (split @ loads)[~tight], 0.0)
    shift = _closest(kernel, start, others, room)
    result = split.copy()
    result[moving] = np.maximum(start + kernel @ shift, 0.0)
    result /= np.bincount(path_demand, result)[path_demand]
    return result


def _closest(kernel: Array, start: Array, loads: Array, room: Array) -> Array:
    """z of least |start + kernel z| with start + kernel z >= 0 and loads kernel z <= room.

    With orthonormal columns in the kernel and y = z + kernel' start this is least |y| with
    G y >= h: least-distance programming, which Lawson and Hanson reduce to non-negative least
    squares of |[G' ; h'] u - (0, ..., 0, 1)|. Unlike an interior-point method that needs no
    interior, and the optimal face often has none.
    """
    moved = loads @ kernel
    binding = np.abs(moved).max(axis=1, initial=0.0) > 1e-12
    matrix = np.vstack([kernel, -moved[binding]])
    centre = kernel.T @ start
    limits = matrix @ centre - np.concatenate([start, room[binding]]) - SLACK
    goal = np.zeros(len(centre) + 1)
    goal[-1] = 1.0
    stacked = np.vstack([matrix.T, limits])
    try:
        multipliers, _ = nnls(stacked, goal)
    except RuntimeError as error:
        raise SolverFailure(
            f"the least-norm split was not found ({error}); ask for the optimal utilisation "
            "without splits"
        ) from error
    residual = stacked @ multipliers - goal
    if residual[-1] > -1e-9:  # would mean that no point fits, though `start` does
        return np.zeros(len(centre))
    return np.asarray(-residual[:-1] / residual[-1] - centre)
