"""The study of rules on groups: its data."""

from __future__ import annotations

import numpy as np

from experiments.peers.parity import ODDS, PARITY
from experiments.peers.people import SOURCES, People, drawn


def test_features_know_the_group_and_labels_differ_by_it() -> None:
    for name in SOURCES:
        train, test = drawn(name, 0, 4000)
        assert len(test.inputs) == 20_000
        rates = [train.labels[train.groups == g].mean() for g in (0, 1)]
        assert abs(rates[1] - rates[0]) > 0.1, name
        assert 0.1 < train.labels.mean() < 0.6, name
        again, _ = drawn(name, 0, 4000)
        assert np.array_equal(train.inputs, again.inputs)


def test_gaps_are_those_of_the_groups() -> None:
    people = People(np.zeros((4, 1)), np.array([1, 0, 1, 0]), np.array([0, 0, 1, 1]))
    assert PARITY.gap(np.array([1, 0, 1, 1]), people) == 0.5
    assert ODDS.gap(np.array([1, 0, 1, 1]), people) == 1.0
