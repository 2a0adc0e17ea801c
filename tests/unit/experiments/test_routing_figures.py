"""Figures are drawn from what run folders hold, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cg4ai.errors import RunFolderError
from cg4ai.routing.pages.journal import found_overloads
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from experiments.routing import figures as routing_figures
from raising import raises

ABOUT = {
    "demands": ["a->c", "b->c"],
    "demand_max": [4.0, 2.0],
    "paths": [["a", "c"], ["a", "b", "c"], ["b", "c"]],
    "path_demand": [0, 0, 1],
    "arcs": [["a", "b"], ["a", "c"], ["b", "c"]],
}
CUTS = {
    "cut_iteration": np.array([0, 0, 2, 5]),
    "cut_arc": np.array([2, 0, 2, 2]),
    "cut_utilisation": np.array([1.2, 1.3, 1.05, 1.01]),
    "cut_demands": np.array([[4.0, 2.0], [4.0, 0.0], [3.0, 2.0], [2.0, 2.0]]),
}


def saved_run(folder: Path, *, cuts: bool = True, slack: float = 0.0) -> Path:
    """What a run of four iterations leaves behind, as far as figures read it."""
    drawn = np.random.default_rng(0).uniform(0.5, 0.98, 40)
    arrays = {
        "optimal_mlu": drawn,
        "predicted_mlu": drawn + 0.01,
        "tight_optimal": drawn,
        "tight_plain": drawn + 0.03,
        "tight_predicted": drawn,
        "optimal_cost": 1e9 * drawn,
        "predicted_cost": 1.02e9 * drawn,
        **(CUTS if cuts else {}),
    }
    with Run.create(folder, "route", {"network": "towns", "demands": 2, "paths": 2}) as run:
        history = [
            {
                "iteration": number,
                "slack": slack,
                "worst_violation": 0.02 - 0.01 * number,
                "columns": 2 + number,
                "rows": 5 * (1 + number),
            }
            for number in range(4)
        ]
        files.append_lines(folder / "history.jsonl", history)
        files.write_json(folder / "ensemble.json", {"about": ABOUT})
        files.write_arrays(folder / "arrays.safetensors", arrays)
        run.finish({"network": "towns"})
    return folder


def test_all_figures_of_the_runs_that_are_there(tmp_path: Path) -> None:
    for name in ("nobel-us-5-3", "nobel-us-10-3", "nobel-germany-15-3", "newyork-5-3"):
        saved_run(tmp_path / name)
    saved_run(tmp_path / "polska-5-3")
    saved_run(tmp_path / "ta1-10-2-cost")
    figures = routing_figures.all_figures(tmp_path, tmp_path / "figures")
    assert [path.stem for path in figures.made] == [
        *("slack", "overloads", "mlu-nobel-germany", "mlu-newyork", "plain-violations"),
        *("plain-violations-newyork", "bottleneck-arc", "cost"),
    ]
    assert set(figures.missing) == {"overloads-di-yuan"}  # that run is not there
    for path in figures.made:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_run_without_overloads_has_no_bottleneck(tmp_path: Path) -> None:
    run = saved_run(tmp_path / "polska-5-3", cuts=False)
    with raises(RunFolderError, "bad-file", "overload"):
        routing_figures.bottleneck_arc(run, tmp_path / "arc.png")
    figures = routing_figures.all_figures(tmp_path, tmp_path / "figures")
    assert figures.made == []
    assert "found no overload" in figures.missing["bottleneck-arc"]
    assert "nobel-us-5-3, which has not ended" in figures.missing["slack"]
    with raises(RunFolderError, "bad-file", "overload"):
        routing_figures.slack(run, tmp_path / "slack.png")
    lacking = saved_run(tmp_path / "lacking", cuts=False, slack=0.1)
    assert routing_figures.slack(lacking, tmp_path / "slack.png").exists()


def test_overloads_of_groups_in_training_are_drawn_beside_those_of_the_mixture() -> None:
    met = {
        "met_iteration": np.array([1, 0]),
        "met_arc": np.array([2, 1]),
        "met_utilisation": np.array([1.4, 0.999]),  # the second is a near miss
        "met_demands": np.array([[1.0, 1.0], [2.0, 2.0]]),
    }
    found = found_overloads(CUTS | met)
    assert found["iteration"].tolist() == [0, 0, 1, 2, 5]
    assert found["utilisation"].tolist() == [1.2, 1.3, 1.4, 1.05, 1.01]
    assert found["training"].tolist() == [False, False, True, False, False]
    alone = found_overloads(met)
    assert alone["arc"].tolist() == [2]
    assert alone["demands"].tolist() == [[1.0, 1.0]]
    assert len(found_overloads({})["arc"]) == 0


def test_overloads_are_the_worst_of_each_iteration() -> None:
    # the cut of "iteration" 5 came from the last search, after four iterations
    training = {"met_iteration": np.array([1]), "met_utilisation": np.array([1.4])}
    training |= {"met_arc": np.array([2]), "met_demands": np.array([[1.0, 1.0]])}
    found = routing_figures._overloads(CUTS | training, 4)  # of the mixture alone
    assert found == pytest.approx([0.3, 0.0, 0.05, 0.0])
    assert routing_figures._overloads({}, 2).tolist() == [0.0, 0.0]


def test_a_mixture_that_was_not_searched_has_no_overloads_to_draw(tmp_path: Path) -> None:
    run = saved_run(tmp_path / "run")
    assert routing_figures.overloads(run, tmp_path / "overloads.png").exists()
    history = [{**record, "worst_violation": None} for record in Run.open(run).history()]
    files.write_bytes(run / "history.jsonl", b"")
    files.append_lines(run / "history.jsonl", history)
    with raises(RunFolderError, "bad-file", "shield"):
        routing_figures.overloads(run, tmp_path / "none.png")


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", "route", {"network": "towns"}):
        pass
    with raises(RunFolderError, "bad-file"):
        routing_figures.predicted_mlu(tmp_path / "run", tmp_path / "mlu.png")
