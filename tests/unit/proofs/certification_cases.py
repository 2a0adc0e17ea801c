"""Small random ensembles and exact values that the tests of certification share."""

from __future__ import annotations

import numpy as np
import torch

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import NetworkArchitecture, NetworkMembers
from cg4ai.members.mixture import Part


def random_networks(
    seed: int,
    *,
    count: int = 2,
    inputs: int = 2,
    outputs: int = 3,
    hidden: tuple[int, ...] = (5,),
    activation: str = "gelu",
    skip: bool = False,
    output: str = "linear",
    groups: tuple[int, ...] = (),
    size: float = 1.5,
) -> NetworkMembers:
    architecture = NetworkArchitecture(
        inputs,
        outputs,
        hidden=hidden,
        activation=activation,  # type: ignore[arg-type]
        skip=skip and bool(hidden),
        output=output,  # type: ignore[arg-type]
        groups=groups,
        shift=np.linspace(-0.3, 0.4, inputs),
        scale=np.linspace(0.5, 2.0, inputs),
    )
    parameters = architecture.initialise(count, torch.Generator().manual_seed(seed))
    return architecture.members({name: size * value for name, value in parameters.items()})


def single_block(members: NetworkMembers, seed: int = 0) -> Ensemble:
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(members)))
    part = Part(members, np.zeros(len(members), np.int64), weights)
    return Ensemble((part,), Layout.single(members.output_size))


def points_in(lower: np.ndarray, upper: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Uniform points, corners and points on faces of a box."""
    generator = np.random.default_rng(seed)
    share = generator.uniform(-0.3, 1.3, (count, len(lower))).clip(0.0, 1.0)
    return np.minimum(lower + share * (upper - lower), upper)
