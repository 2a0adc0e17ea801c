"""A row alone against the same row in a batch: within what certificates allow for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import NetworkArchitecture, from_sklearn
from cg4ai.members.mixture import Part
from cg4ai.proofs.bounds.rounding import BOUND_FACTOR, compute_margins
from cg4ai.proofs.bounds.terms import Parts
from cg4ai.rules import Linear
from cg4ai.rules.affine import find_affine_rules
from cg4ai.rules.regions import Box

INPUTS, OUTPUTS = 5, 4


def random_networks(draw: Any, seed: int) -> Part:
    rng = np.random.default_rng(seed)
    hidden = draw(st.sampled_from([(), (3,), (40,), (33, 7)]))
    output = draw(st.sampled_from(["linear", "softmax", "grouped"]))
    architecture = NetworkArchitecture(
        INPUTS,
        OUTPUTS,
        hidden=hidden,
        activation=draw(st.sampled_from(["relu", "gelu", "tanh"])),
        skip=bool(hidden) and draw(st.booleans()),
        output=output,
        groups=(2, 2) if output == "grouped" else (),
        shift=rng.normal(size=INPUTS),
        scale=rng.uniform(0.1, 10, INPUTS),
    )
    count = draw(st.sampled_from([1, 3, 20]))
    size = draw(st.sampled_from([0.1, 1.0, 30.0]))
    start = architecture.initialise(count, torch.Generator().manual_seed(seed))
    members = architecture.members({name: size * value for name, value in start.items()})
    return Part(members, np.zeros(count, np.int64), rng.dirichlet(np.ones(count)))


def forest(seed: int) -> Part:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1, 1, (40, INPUTS)), 100 * rng.normal(size=(40, OUTPUTS))
    model = RandomForestRegressor(n_estimators=7, max_depth=3, random_state=seed).fit(x, y)
    return Part(from_sklearn(model), np.zeros(1, np.int64), np.ones(1))


@st.composite
def ensembles(draw: Any) -> Ensemble:
    seed = draw(st.integers(0, 10_000))
    parts = [random_networks(draw, seed)]
    if draw(st.booleans()):
        parts.append(forest(seed))
    shared = [Part(p.members, p.blocks, p.weights / len(parts)) for p in parts]
    return Ensemble(tuple(shared), Layout.single(OUTPUTS))


def allowance(ensemble: Ensemble, box: Box) -> np.ndarray:
    """(r,): what a certificate adds to the bound of each single output."""
    rules = find_affine_rules(Linear(box, np.eye(OUTPUTS), 0.0, "<="), output_size=OUTPUTS)
    lower, upper = box.bounds()
    return compute_margins(Parts(ensemble.used, ensemble.layout, lower=lower, upper=upper), rules)


@settings(max_examples=60, deadline=None)
@given(
    ensembles(),
    st.sampled_from([1, 2, 31, 33, 200, 1025]),
    st.sampled_from([1.0, 1000.0]),
    st.integers(0, 10_000),
)
def test_a_row_alone_and_in_a_batch_differ_by_less_than_certificates_allow(
    ensemble: Ensemble, size: int, width: float, seed: int
) -> None:
    box = Box(np.full(INPUTS, -width), np.full(INPUTS, width))
    inputs = np.random.default_rng(seed).uniform(-width, width, (size, INPUTS))
    together = ensemble.predict(inputs)
    chosen = np.unique(np.linspace(0, size - 1, 8).astype(int))
    alone = np.concatenate([ensemble.predict(inputs[i : i + 1]) for i in chosen])
    # two ways to round lie within twice the error of one, which the allowance holds 48 times
    assert BOUND_FACTOR >= 16
    assert (np.abs(together[chosen] - alone) <= allowance(ensemble, box) / 24).all()
