"""First layers trained through a blur, for networks that read square pictures."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.protocols import Parameters

FIRST = "weight_0"


def picture_side(pixels: int) -> int:
    """The side of a square picture of so many pixels; other numbers are refused."""
    side = math.isqrt(pixels)
    if side * side != pixels:
        raise InvalidInput(
            f"a blurred first layer reads square pictures, got {pixels} inputs; use blur 0"
        )
    return side


def blurred(parameters: Parameters, *, blur: float, gain: float) -> Parameters:
    """The same network with `gain` times its first layer, blurred by `blur` pixels; 0: unchanged.

    Each neuron's weights are a picture, blurred along both axes by a Gaussian.
    """
    if blur == 0:
        return parameters
    first = parameters[FIRST]
    side = picture_side(first.shape[-1])
    kernel = blur_matrix(blur, side).to(first)
    pictures = first.reshape(*first.shape[:-1], side, side)
    smooth = gain * (kernel @ pictures @ kernel)
    return {**parameters, FIRST: smooth.reshape(first.shape)}


def blur_matrix(sigma: float, side: int) -> Tensor:
    """(side, side), symmetric: row i spreads pixel i over its line as a Gaussian; edges lose."""
    place = torch.arange(side, dtype=torch.float64)
    distance = (place[:, None] - place[None, :]) / sigma
    return torch.exp(-0.5 * distance.square()) / (sigma * math.sqrt(2 * math.pi))
