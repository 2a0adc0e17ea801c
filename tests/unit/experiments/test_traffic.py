"""The experiment on measured traffic: a pod's files, and what is held out for choices."""

from pathlib import Path

import numpy as np

from cg4ai.routing import read_traffic
from cg4ai.routing.app import Routing
from experiments.traffic import asked, tables


def pod(folder: Path) -> None:
    """Three nodes, each with the direct path and the one over the third."""
    ends = [(s, t) for s in range(3) for t in range(3) if s != t]
    lines = [f"{s} {t}:{s}-{t},{s}-{3 - s - t}-{t}" for s, t in ends]
    matrices = np.random.default_rng(0).uniform(1, 9, (25, 3, 3)).astype(np.float32)
    matrices[:, range(3), range(3)] = 0
    np.savez(
        folder / "pod_a.npz",
        train=matrices[:20],
        test=matrices[20:],
        arcs=np.array(ends),
        capacity=np.full(6, 10.0),
        tunnels=np.array([*lines, ""]),
    )


def test_the_pod_becomes_files_that_the_command_reads(tmp_path: Path) -> None:
    pod(tmp_path)
    settings = asked("pod_a", tmp_path, tmp_path / "out", choose=False)
    prepared = Routing().prepare(settings, None)
    measured, made = prepared.measured, prepared.instance
    assert measured is not None
    assert (len(measured.earlier), len(measured.later)) == (20, 5)
    assert len(made.paths) == 12
    assert made.paths[0] == ("0", "1")
    assert made.paths[1] == ("0", "2", "1")
    assert made.load == 0.99  # asked for, as published figures are
    np.testing.assert_allclose(made.capacity, 10.0 * (made.capacity_factor or 0))


def test_choices_never_see_the_test_days(tmp_path: Path) -> None:
    pod(tmp_path)
    settings = asked("pod_a", tmp_path, tmp_path / "out", choose=True)
    assert settings.traffic is not None
    assert len(read_traffic(settings.traffic)) == 20
    measured = Routing().prepare(settings, None).measured
    assert measured is not None
    assert (len(measured.earlier), len(measured.later)) == (16, 4)


def test_tables_name_every_routing() -> None:
    row = {"mean": 1.01, "p95": 1.02, "p99": 1.03, "worst": 1.04}
    found = {"earlier": 9, "later": 3, "inside": 0.5, "level": 0.99, "ratio": {"ours": row}}
    summary = {"network": "net", "demands": 2, "links": 4, "strength": "shielded"}
    summary |= {"from_traffic": True, "load": 0.99, "capacity_factor": 2.0}
    text = tables({**summary, "traffic": found, "total_s": 1.0, "evaluation_s": 2.0})
    assert "50.00% of which lie in the set" in text
    assert text.startswith("SCALED CAPACITIES: every link is counted with 2 times its capacity")
    assert "and 0.990 of capacity x 2 (1.980 of the real one)" in text
    assert "| ours | 1.0100 | 1.0200 | 1.0300 | 1.0400 |" in text
