"""Affine copies of images: soft data that members are trained on and no rule speaks of."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from cg4ai.errors import InvalidInput

SIDE = 28


@dataclass(frozen=True, slots=True)
class Affine:
    """How far a copy may be turned (degrees), scaled (share) and moved (pixels), either way."""

    degrees: float = 12.0
    scale: float = 0.12
    shift: float = 2.0

    def __post_init__(self) -> None:
        if not (0 <= self.degrees <= 180 and 0 <= self.scale < 1 and 0 <= self.shift <= SIDE):
            raise InvalidInput(
                "affine copies need degrees in [0, 180], scale in [0, 1) and shift in [0, "
                f"{SIDE}], got {self}"
            )

    def copies(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """One copy of each image, (n, 784) -> (n, 784), drawn uniformly and interpolated."""
        draws = torch.rand(4, len(images), generator=generator).to(images) * 2 - 1
        angle = draws[0] * math.radians(self.degrees)
        size = 1 + draws[1] * self.scale
        moved = draws[2:] * (2 * self.shift / SIDE)  # grid_sample counts from -1 to 1
        cosine, sine = angle.cos() / size, angle.sin() / size
        first = torch.stack([cosine, -sine, moved[0]], dim=1)
        second = torch.stack([sine, cosine, moved[1]], dim=1)
        shape = (len(images), 1, SIDE, SIDE)
        grid = functional.affine_grid(torch.stack([first, second], dim=1), list(shape), False)
        pictures = functional.grid_sample(
            images.reshape(shape), grid, mode="bilinear", padding_mode="zeros", align_corners=False
        )
        return pictures.reshape(len(images), SIDE * SIDE)
