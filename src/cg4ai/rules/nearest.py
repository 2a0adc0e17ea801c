"""The nearest points of a polytope, many at a time, by accelerated ascent on the multipliers."""

from __future__ import annotations

import torch
from torch import Tensor

ITERATIONS = 2000  # to be exact but for rounding
ROUGHLY = 50  # to lose a small share of the distance
LOOK = 25  # iterations between looks at who has arrived
ENOUGH = 1e-12  # residual relative to the size of the points and limits


def nearest(
    points: Tensor, matrix: Tensor, limit: Tensor, box: tuple[Tensor, Tensor], *, iterations: int
) -> Tensor:
    """(n, d) -> (n, d): the nearest point of the box with matrix @ x <= limit.

    With y >= 0 the multipliers of the limits it is `x(y) = clip(point - y matrix)`, where y
    maximises the dual function: concave, with slope `matrix x(y) - limit`. Momentum is dropped
    where it points downhill. A point that has not arrived after all iterations is a little off,
    and may break limits by as little.
    """
    lower, upper = box
    size = torch.linalg.vector_norm(matrix, dim=1)
    rows, ends = matrix[size > 0] / size[size > 0, None], limit[size > 0] / size[size > 0]
    length = 1 / torch.linalg.matrix_norm(rows, ord=2) ** 2
    enough = ENOUGH * (1 + points.abs().amax() + ends.abs().amax())

    def place(given: Tensor, multipliers: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(given - multipliers @ rows, lower), upper)

    result, left = points.clone(), torch.arange(len(points), device=points.device)
    last = points.new_zeros(len(points), len(rows))
    ahead, pace = last, points.new_ones(len(points), 1)
    for iteration in range(iterations):
        given = points[left]
        y = (ahead + length * (place(given, ahead) @ rows.T - ends)).clamp_min(0.0)
        downhill = ((y - ahead) * (y - last)).sum(-1, keepdim=True) < 0
        quicker = (1 + torch.sqrt(1 + 4 * pace**2)) / 2
        ahead = y + torch.where(downhill, 0.0, (pace - 1) / quicker) * (y - last)
        last, pace = y, torch.where(downhill, 1.0, quicker)
        if iteration % LOOK == LOOK - 1:
            result[left] = x = place(given, y)
            away = torch.minimum(y, ends - x @ rows.T).abs().amax(-1) > enough
            if not bool(away.any()):
                break
            left, last, ahead, pace = left[away], last[away], ahead[away], pace[away]
    return result
