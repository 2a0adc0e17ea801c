"""Small mixtures, regions and an oracle for the tests of proofs beyond plain limits."""

from __future__ import annotations

import json

import numpy as np
import torch

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import NetworkArchitecture, affine
from cg4ai.members.mixture import Part
from cg4ai.proofs.rule_forms import find_proof_rules
from cg4ai.proofs.structure_certificates import seal_arrays
from cg4ai.rules.regions import Box, Polytope
from cg4ai_checker.file import parse_certificate

BOX = Box(-np.ones(3), np.ones(3))
HOSE = Polytope(BOX, [[1.0, 1.0, 1.0], [1.0, -1.0, 0.5]], [0.4, 0.6])


def alone(members, weights=None):
    count = len(members)
    weights = np.full(count, 1 / count) if weights is None else weights
    part = Part(members, np.zeros(count, np.int64), weights)
    return Ensemble((part,), Layout.single(members.output_size))


def networks(seed, *, inputs=3, outputs=2, hidden=(6,), scale=1.5, activation="gelu", **shape):
    architecture = NetworkArchitecture(
        inputs, outputs, hidden=hidden, activation=activation, **shape
    )
    parameters = architecture.initialise(2, torch.Generator().manual_seed(seed))
    return alone(architecture.members({k: scale * v for k, v in parameters.items()}))


def line(slope, offset):
    """y = slope x + offset."""
    return alone(affine(np.asarray(slope, float).T[None], np.asarray(offset, float)[None]))


def most(ensemble, rule, per_axis=49):
    """(n, L): by how much each rule exceeds its limit at samples, on a grid and at vertices."""
    generator = torch.Generator().manual_seed(0)
    region = rule.region
    axes = [np.linspace(low, high, per_axis) for low, high in zip(*region.bounds(), strict=True)]
    grid = torch.as_tensor(np.stack(np.meshgrid(*axes), -1).reshape(-1, region.size))
    points = torch.cat([grid, region.sample(5000, generator), region.extremes(200, generator)])
    points = region.project(points).numpy()
    points = points[region.contains(points)]
    rules = find_proof_rules(rule, output_size=ensemble.output_size)
    return rules.measure(points, ensemble.predict(points)) - rules.targets


def altered(data, change):
    """The certificate with `change(claim, arrays)` applied in place and a fitting new digest."""
    content = parse_certificate(data)
    change(content.claim, content.arrays)
    text = json.dumps(content.claim).encode()
    return seal_arrays({**content.arrays, "claim": np.frombuffer(text, np.uint8)})
