"""Writing certificates, keeping unfinished ones, and the commands `certify` and `check`."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import cg4ai
from cg4ai.apps.protocol import Proposition
from cg4ai.cli.certify_run import report_unproven
from cg4ai.cli.main import main
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, ModuleArchitecture, NetworkArchitecture
from cg4ai.members import restore as restore_members
from cg4ai.members.mixture import Part
from cg4ai.proofs import certificate as certificates
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import (
    build_certificate,
    load_unfinished,
    save_unfinished,
    write_certificate,
)
from cg4ai.routing.network.description import describe_instance, restore_instance
from cg4ai.routing.network.instance import Instance
from cg4ai.rules import Linear, Margin, Probability
from cg4ai.rules.regions import Ball, Box
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai_checker import check, claim
from cg4ai_checker.file import parse_certificate
from raising import raises

BOX = Box([-1.0, -1.0], [1.0, 1.0])


def small(seed=0, output="softmax"):
    """Three networks and a constant in one block, one of them without weight."""
    random = np.random.default_rng(seed)
    architecture = NetworkArchitecture(2, 3, hidden=(4,), activation="gelu", output=output)
    parameters = {
        name: random.normal(size=(3, *shape)) for name, shape in architecture.shapes().items()
    }
    parts = (
        Part(architecture.members(_tensors(parameters)), np.zeros(3, int), np.array([0.5, 0, 0.3])),
        Part(ConstantMembers([[0.2, 0.5, 0.3]], 2), np.zeros(1, int), np.array([0.2])),
    )
    return Ensemble(parts, Layout.single(3))


def _tensors(arrays):
    import torch

    return {name: torch.as_tensor(array) for name, array in arrays.items()}


@pytest.mark.parametrize(
    "wanted",
    [
        Linear(BOX, [1.0, 1.0, 0.0], 0.999, "<=", name="cap"),
        Linear(BOX, [[1.0, 0, 0], [0, 0, 1.0]], [0.01, 0.03], ">=", name="floor"),
        Probability(BOX, 1, 0.05, name="chance"),
        Margin(Ball([0.2, 0.3], 0.1), 1, -0.9, form="pairwise", name="lead"),
    ],
    ids=lambda wanted: wanted.name,
)
def test_what_the_certifier_proves_the_checker_accepts(wanted, tmp_path):
    ensemble = small()
    found = certify(ensemble, wanted, time_limit_s=20)
    assert found.status == "proven"
    path = tmp_path / "certificate.cg4ai"
    digest = write_certificate(path, ensemble, requirement=wanted, certification=found)
    verdict = check(path)
    assert verdict.digest == digest
    assert verdict.claim.requirement == wanted.name
    assert verdict.claim.member_count == 3  # the one without weight is left out
    assert verdict.claim.region.lower == pytest.approx(wanted.region.bounds()[0])


def test_only_proven_claims_are_written():
    ensemble = small()
    wanted = Linear(BOX, [1.0, 1.0, 0.0], 0.999, "<=")
    found = certify(ensemble, wanted, time_limit_s=20)
    for change, code in (
        ({"status": "unknown"}, "rejected"),
        ({"rules": found.rules * 2}, "shape"),
        ({"rules": (dataclasses.replace(found.rules[0], limit=2.0),)}, "altered"),
    ):
        with raises(InvalidInput, code):
            build_certificate(
                ensemble,
                requirement=wanted,
                certification=dataclasses.replace(found, **change),
            )


def test_a_certificate_is_written_only_of_what_was_proven(tmp_path):
    wanted = Linear(BOX, [1.0, 1.0, 0.0], 0.999, "<=", name="cap")
    inner = certify(small(), wanted, region=Box([-0.5, -0.5], [0.5, 0.5]), time_limit_s=20)
    whole = certify(small(), wanted, time_limit_s=20)
    path = tmp_path / "certificate.cg4ai"
    unnamed = dataclasses.replace(whole, subject="")
    for ensemble, found, code in (
        (small(), inner, "altered"),
        (small(1), whole, "altered"),
        (small(), unnamed, "invalid-input"),
        (small().apply_shield([0.3, 0.3, 0.4], wanted), whole, "altered"),
    ):
        with raises(InvalidInput, code):
            write_certificate(path, ensemble, requirement=wanted, certification=found)
    with raises(InvalidInput, "altered"):
        save_unfinished(tmp_path, small(1), wanted, whole)
    assert not list(tmp_path.iterdir())


def test_resuming_is_advised_only_where_cells_can_be_halved(tmp_path):
    constant = Part(ConstantMembers([[1.0]], 1), np.zeros(1, int), np.ones(1))
    ensemble = Ensemble((constant,), Layout.single(1))
    wanted = Linear(Box([2.0], [2.0]), [1.0], 1.0, "<=", name="cap")
    job = Proposition(wanted, "a constant", None, ["x"])
    found = certify(ensemble, wanted)
    text = report_unproven(job, found, tmp_path)
    assert "UNKNOWN" in text
    assert "margin" in text
    assert "--resume" not in text
    assert "--resume" in report_unproven(job, dataclasses.replace(found, exhausted=False), tmp_path)


def test_balls_of_different_norm_are_different_subjects(tmp_path):
    round_, square = (
        Linear(Ball([0.0, 0.0], 1.0, norm), [1.0, 1.0, 0.0], 0.999, "<=") for norm in (2, np.inf)
    )
    found = certify(small(), round_, time_limit_s=20)
    with raises(InvalidInput, "altered"):
        build_certificate(small(), requirement=square, certification=found)
    assert build_certificate(small(), requirement=round_, certification=found)


def test_weights_and_kinds_that_cannot_be_checked_are_refused():
    import torch

    wanted = Linear(BOX, [1.0, 1.0, 0.0], 0.999, "<=")
    found = certify(small(), wanted, time_limit_s=20)
    loose = small()
    parts = (*loose.parts[:1], dataclasses.replace(loose.parts[1], weights=np.array([0.2 + 1e-8])))
    with raises(InvalidInput, "range"):
        build_certificate(Ensemble(parts, loose.layout), requirement=wanted, certification=found)
    modules = ModuleArchitecture(lambda: torch.nn.Linear(2, 3), 2, 3, "mine")
    members = modules.members(modules.initialise(1, torch.Generator()))
    own = Ensemble((Part(members, np.zeros(1, int), np.ones(1)),), Layout.single(3))
    with raises(InvalidInput, "unsupported", "module"):
        build_certificate(own, requirement=wanted, certification=found)


def test_the_same_claim_gives_the_same_bytes():
    wanted = Linear(BOX, [1.0, 1.0, 0.0], 0.999, "<=")
    found = certify(small(), wanted, time_limit_s=20)
    one, other = (
        build_certificate(small(), requirement=wanted, certification=found) for _ in range(2)
    )
    assert parse_certificate(one).claim == parse_certificate(other).claim
    assert one == other


def test_members_from_a_file_give_the_same_bytes():
    """Certificates of a resumed run had the arrays of members in an order left to chance."""
    wanted = Linear(BOX, [1.0, 1.0, 0.0], 0.999, "<=")
    found = certify(small(), wanted, time_limit_s=20)
    parts = tuple(
        dataclasses.replace(part, members=restore_members(turned_round(part.members.state())))
        for part in small().parts
    )
    stored = Ensemble(parts, Layout.single(3))
    one, other = (
        build_certificate(ensemble, requirement=wanted, certification=found)
        for ensemble in (small(), stored)
    )
    assert one == other


def turned_round(state):
    return dataclasses.replace(state, arrays=dict(reversed(state.arrays.items())))


def test_unfinished_certifications_go_on_where_they_stopped(tmp_path):
    ensemble = small()
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 201)] * 2), axis=-1).reshape(-1, 2)
    most = ensemble.predict(grid)[:, :2].sum(axis=1).max()
    wanted = Linear(BOX, [1.0, 1.0, 0.0], most + 1e-3, "<=", name="cap")
    whole = certify(ensemble, wanted, time_limit_s=20)
    assert whole.status == "proven"
    first = certify(ensemble, wanted, cell_limit=3)
    assert first.status == "unknown"
    save_unfinished(tmp_path, ensemble, wanted, first)
    resumed = certify(
        ensemble, wanted, resume=load_unfinished(tmp_path, ensemble, wanted), time_limit_s=20
    )
    assert resumed.status == "proven"
    assert check(build_certificate(ensemble, requirement=wanted, certification=resumed))
    with raises(RunFolderError, "altered"):
        load_unfinished(tmp_path, small(1), wanted)
    with raises(RunFolderError, "altered"):
        load_unfinished(tmp_path, ensemble, Linear(BOX, [1.0, 1.0, 0.0], 0.98, "<="))
    with raises(RunFolderError, "bad-file", "certification"):
        load_unfinished(tmp_path, ensemble, wanted, number=2)


@pytest.mark.parametrize(
    ("tree", "leaves"), [([], 0), ([0, -1], 1), ([-1, -1], 2), ([9, -1, -1], 2), ([0, -1, -1], 3)]
)
def test_an_unfinished_tree_that_is_none_is_refused_with_one_line(tmp_path, tree, leaves):
    ensemble, wanted = small(), Linear(BOX, [1.0, 1.0, 0.0], 0.985, "<=")
    answer = certify(ensemble, wanted, cell_limit=1)
    broken = dataclasses.replace(
        answer.rules[0], dimensions=np.array(tree, np.int16), leaf_bounds=np.ones(leaves)
    )
    save_unfinished(tmp_path, ensemble, wanted, dataclasses.replace(answer, rules=(broken,)))
    with raises(RunFolderError, "bad-file", "damaged"):
        load_unfinished(tmp_path, ensemble, wanted)


# ---- the commands ----------------------------------------------------------------------------


def tiny_instance():
    """Two demands into b, each direct or over c."""
    return Instance(
        name="tiny",
        arcs=[("a", "b"), ("a", "c"), ("c", "b"), ("d", "b"), ("d", "c")],
        capacity=np.array([6.0, 5.0, 6.9, 5.0, 5.0]),
        incidence=np.array(
            [[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 1, 0, 1]], float
        ),
        path_demand=np.array([0, 0, 1, 1]),
        demand_max=np.array([8.0, 6.0]),
        path_length=np.array([1.0, 2.0, 1.0, 2.0]),
        demand_names=["a->b", "d->b"],
        paths=[("a", "b"), ("a", "c", "b"), ("d", "b"), ("d", "c", "b")],
    )


def routing_run(folder, *, share=0.55):
    """A finished run of `route` whose networks send about `share` of each demand directly."""
    instance = tiny_instance()
    random = np.random.default_rng(2)
    architecture = NetworkArchitecture(
        2, 2, hidden=(4,), activation="gelu", skip=True, output="softmax",
        shift=instance.demand_max / 2, scale=instance.demand_max / 3,
    )  # fmt: skip
    parameters = {
        name: 0.1 * random.normal(size=(2, *shape)) for name, shape in architecture.shapes().items()
    }
    parameters["bias_1"] = np.tile([np.log(share / (1 - share)), 0.0], (2, 1))
    members = architecture.members(_tensors(parameters))
    ensemble = Ensemble(
        (Part(members, np.arange(2), np.ones(2)),),
        Layout(instance.blocks),
        about={"application": "routing", **describe_instance(instance)},
    )
    with Run.create(folder, "route", {"network": "tiny", "seed": 0}) as run:
        ensemble.save(folder)
        run.finish({"network": "tiny", "strength": "attacked"})
    return folder


def test_stored_instance_is_the_one_trained_for():
    instance = tiny_instance()
    rebuilt = restore_instance(json.loads(json.dumps(describe_instance(instance))))
    for name in ("capacity", "incidence", "path_demand", "demand_max", "path_length"):
        np.testing.assert_array_equal(getattr(rebuilt, name), getattr(instance, name))
    with raises(RunFolderError, "bad-file", "network"):
        restore_instance({"network": "tiny"})


def test_certify_then_check_a_router(tmp_path, capsys):
    run = routing_run(tmp_path / "run")
    assert main(["certify", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "PROVEN: capacity holds at every input of a box in 2 dimensions" in printed
    summary = files.read_json(run / "summary.json")
    assert summary["strength"] == "certified"
    assert summary["certificate"]["file"] == "certificate.cg4ai"
    assert not (run / "certification.safetensors").exists()
    labels = cg4ai.load(run).predict(np.array([[1.0, 2.0], [9.0, 1.0]]), explain=True).labels
    assert labels.tolist() == ["certified", "unverified"]

    file = str(run / "certificate.cg4ai")
    assert main(["check", file, "--run", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "Proven: 'capacity' of the router of tiny, 2 demands" in printed
    assert "each of 5 rules" in printed
    assert "members, weights and layout are equal" in printed
    assert "capacities of the network stored there" in printed

    other = routing_run(tmp_path / "other", share=0.56)
    assert main(["check", file, "--run", str(other)]) == 1
    assert "REJECTED" in capsys.readouterr().err


def test_check_compares_the_network_too(tmp_path, capsys):
    run = routing_run(tmp_path / "run")
    assert main(["certify", str(run), "--quiet"]) == 0
    path = run / "ensemble.json"
    content = files.read_json(path)
    content["about"]["capacity"][0] /= 2
    files.write_json(path, content)
    assert main(["check", str(run / "certificate.cg4ai"), "--run", str(run)]) == 1
    assert "not the network's" in capsys.readouterr().err


def test_refuted_runs_print_the_demands_and_exit_1(tmp_path, capsys):
    run = routing_run(tmp_path / "run", share=0.9)  # 0.9 * 8 exceeds the 6 of link a->b
    assert main(["certify", str(run), "--quiet"]) == 1
    printed = capsys.readouterr().out
    assert "REFUTED: link a->b reaches" in printed
    assert "a->b = " in printed
    assert not (run / "certificate.cg4ai").exists()
    assert files.read_json(run / "summary.json")["strength"] == "attacked"


def test_unknown_runs_say_what_resists_and_can_be_resumed(tmp_path, capsys):
    run = routing_run(tmp_path / "run")
    assert main(["certify", str(run), "--cells", "1", "--quiet"]) == 1
    printed = capsys.readouterr().out
    assert "UNKNOWN: capacity is neither proven nor refuted" in printed
    assert "these resist" in printed
    assert "link " in printed
    assert files.read_json(run / "summary.json")["strength"] == "attacked"
    assert main(["certify", str(run), "--resume", "--quiet"]) == 0
    assert main(["certify", str(run), "--resume", "--quiet"]) == 2  # nothing left to resume
    assert "start one without --resume" in capsys.readouterr().err


def test_a_memory_limit_below_one_batch_is_refused_with_what_to_raise(tmp_path, capsys):
    run = routing_run(tmp_path / "run")
    assert main(["certify", str(run), "--memory-limit", "1e-9", "--quiet"]) == 2
    assert "memory" in capsys.readouterr().err
    assert main(["certify", str(run), "--memory-limit", "0", "--quiet"]) == 2
    assert "--memory-limit" in capsys.readouterr().err
    assert main(["certify", str(run), "--memory-limit", "0.5", "--quiet"]) == 0


def test_the_longest_text_is_the_checkers_own():
    assert certificates.LONGEST_TEXT == claim.LONGEST_TEXT


def test_names_that_the_checker_would_reject_are_refused_before_any_search(tmp_path, capsys):
    run = routing_run(tmp_path / "run")
    content = files.read_json(run / "ensemble.json")
    content["about"]["network"] = "two\nlines"
    files.write_json(run / "ensemble.json", content)
    with Run.open(run) as opened:
        opened.finish(opened.summary(compared=False))
    assert main(["certify", str(run), "--quiet"]) == 2
    assert "without control characters" in capsys.readouterr().err
    assert not (run / "certificate.cg4ai").exists()


def test_rejected_and_missing_files_have_their_exit_codes(tmp_path, capsys):
    path = tmp_path / "certificate.cg4ai"
    path.write_bytes(b"cg4ai-certificate 3 sha256 " + b"0" * 64 + b"\n")
    assert main(["check", str(path)]) == 1
    assert main(["check", str(tmp_path / "none")]) == 2
    assert main(["certify", str(tmp_path / "none")]) == 2
    assert main(["certify", str(tmp_path), "--time-limit", "0"]) == 2


def test_rules_of_a_trained_run_are_certified(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    points = random.uniform(-1, 1, (40, 2))
    lines = [f"{a:.4f},{b:.4f},{a + b:.4f}" for a, b in points]
    (tmp_path / "data.csv").write_text("a,b,y\n" + "\n".join(lines) + "\n")
    rule = {"rule": "linear", "name": "cap", "box": {}, "coefficients": {"y": 1.0}, "at_most": 4.0}
    listed = {
        "rule": "linear",
        "name": "rows",
        "rows": [0],
        "coefficients": {"y": 1.0},
        "at_most": 9,
    }
    (tmp_path / "rules.json").write_text(json.dumps([rule, listed]))
    trained = ["train", "data.csv", "--target", "y", "--rules", "rules.json", "--out", "run"]
    assert main([*trained, "--members", "affine", "--iteration-limit", "3", "--quiet"]) == 0
    assert main(["certify", "run", "--quiet"]) == 0
    assert main(["check", "run/certificate.cg4ai", "--run", "run"]) == 0
    audits = files.read_json("run/summary.json")["audits"]
    assert [audit["strength"] for audit in audits] == ["certified", "audited"]
    capsys.readouterr()
    assert main(["show", "run"]) == 0
    shown = capsys.readouterr().out
    assert "Both rules hold." in shown
    assert "at every input of a box in 2 dimensions (proven)" in shown
    (tmp_path / "rules.json").write_text(json.dumps([listed]))
    assert main(["certify", "run", "--quiet"]) == 2
    assert "was changed since" in capsys.readouterr().err
    (tmp_path / "rules.json").unlink()
    assert main(["certify", "run", "--quiet"]) == 2
    assert "which is not there" in capsys.readouterr().err
