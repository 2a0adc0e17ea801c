"""The integer master against brute force over all choices."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cg4ai.colgen.master.integer import choose
from cg4ai.colgen.master.table import NO_SLACK, OWN_SLACK, MasterTable


def random_table(seed: int) -> MasterTable:
    made = np.random.default_rng(seed)
    blocks = int(made.integers(1, 4))
    counts = made.integers(1, 6, blocks)
    table = MasterTable(blocks)
    scenarios = int(made.integers(0, 4))
    if scenarios:
        table.add_epigraph(made.random(scenarios), floor=-0.5)
    owners = made.permutation(np.repeat(np.arange(blocks), counts))
    table.add_columns(made.normal(size=len(owners)), owners, np.zeros((0, len(owners))))
    rules = int(made.integers(0, 5))
    bounds = made.normal(size=rules) - 0.5
    table.add_rows(made.normal(size=(rules, len(owners))), bounds, np.full(rules, OWN_SLACK), None)
    if scenarios:
        of = np.repeat(np.arange(scenarios), 3)
        pieces = made.normal(size=(len(of), len(owners)))
        table.add_rows(pieces, np.zeros(len(of)), np.full(len(of), NO_SLACK), of)
    return table


def judged(table: MasterTable, columns: tuple[int, ...]) -> tuple[float, float]:
    """Cost and total shortfall of a choice, by the definition."""
    value = table.coefficients[:, list(columns)].sum(1)
    ruled = table.epigraph_of < 0
    slack = np.maximum(table.bounds - value, 0)[ruled].sum()
    cost = table.costs[list(columns)].sum()
    for scenario, weight in enumerate(table.epigraph_weights):
        mine = table.epigraph_of == scenario
        level = max([table.epigraph_floor, *(table.bounds[mine] - value[mine])])
        cost += weight * level
    return float(cost), float(slack)


@pytest.mark.parametrize("seed", range(60))
def test_equals_brute_force(seed: int) -> None:
    table = random_table(seed)
    own = [np.flatnonzero(table.column_blocks == g).tolist() for g in range(table.blocks)]
    every = [judged(table, columns) for columns in product(*own)]
    kept = [cost for cost, slack in every if slack <= 1e-9]
    found = choose(table, tolerance=np.full(table.n_rows, 1e-7))
    cost, slack = judged(table, tuple(found.columns.tolist()))
    assert found.objective == pytest.approx(cost)
    assert table.column_blocks[found.columns].tolist() == list(range(table.blocks))
    if kept:
        assert found.met
        assert found.objective == pytest.approx(min(kept), abs=1e-7)
        assert found.bound == pytest.approx(min(kept), abs=1e-6)
    else:
        assert not found.met
        assert found.bound == np.inf
        if table.blocks > 1:
            assert slack == pytest.approx(min(slack for _, slack in every), abs=1e-6)
            return
        short = table.bounds[:, None] - table.coefficients
        missed = (short[table.epigraph_of < 0] > 1e-7).sum(0)
        assert missed[found.columns[0]] == missed.min()
