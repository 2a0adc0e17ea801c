"""Invented grids: a rule that shares the load by size keeps all rates, and units do not matter."""

import numpy as np

from experiments.command import command
from experiments.opf.dispatch import Dispatch, measure_violation
from experiments.opf.grid import build_grid
from experiments.opf.matpower import read_case
from experiments.opf.optimum import find_optima
from experiments.opf.two_areas import work


def write_grid(path, *arguments):
    assert command(work, "two_areas", "areas.m", [str(path), "--buses", "12", *arguments]) == 0
    return Dispatch(build_grid(read_case(path)), 0.1)


def test_the_load_shared_by_size_is_safe_and_dear(tmp_path):
    problem = write_grid(tmp_path / "areas.m")
    grid, rng = problem.grid, np.random.default_rng(0)
    loads = problem.loads(np.sign(rng.uniform(-1, 1, (50, 12))))
    shared = loads.sum(1)[:, None] * grid.upper / grid.upper.sum()
    found = measure_violation(grid, shared, loads)
    assert found.line_mw == found.generator_mw == 0
    optima = find_optima(problem, loads)
    assert (grid.cost(shared) / optima.costs).mean() > 1.05
    bound = np.abs(grid.flows(optima.dispatch, loads)) > (1 - 1e-6) * grid.rate
    assert bound.any(1).mean() > 0.5  # lines do hold cheap generators back


def test_other_units_are_the_same_rules(tmp_path):
    ours = write_grid(tmp_path / "areas.m")
    other = write_grid(tmp_path / "per_unit.m", "--unit", "100")
    assert np.allclose(other.grid.loads, ours.grid.loads / 100)
    for name in ("constant", "limit", "tilt"):
        one, two = (getattr(each.limits.normal_form, name) for each in (ours, other))
        assert np.allclose(one, two, atol=1e-9)
    assert np.isclose(other.money, ours.money)


def test_impossible_wishes_are_refused(tmp_path, capsys):
    for wish in (["--buses", "7"], ["--headroom", "0"]):
        assert command(work, "two_areas", "areas.m", [str(tmp_path / "a.m"), *wish]) == 2
        assert capsys.readouterr().err.count("\n") == 1
