"""Proven is what the checker proves: a search that closes every cell is not enough."""

from __future__ import annotations

import numpy as np
import pytest
from certification_cases import single_block

from cg4ai.apps.protocol import Proposition
from cg4ai.cli.certify_run import _shower, report_unproven
from cg4ai.ensemble.claims import record_certified
from cg4ai.errors import InvalidInput
from cg4ai.members import NetworkArchitecture, NetworkMembers
from cg4ai.proofs import Progress, certificate, certify, verify_certification
from cg4ai.proofs.certificate import load_unfinished, save_unfinished, write_certificate
from cg4ai.rules import Linear
from cg4ai.rules.regions import Box
from cg4ai_checker import check
from raising import raises

ROOM = 1e-4


def tiny_units(size):
    """y = x by way of a hidden unit of this size: the checker's bands are 3e-14 wide at least."""
    architecture = NetworkArchitecture(1, 1, hidden=(1,), activation="relu")
    return single_block(
        NetworkMembers(
            architecture,
            {
                "weight_0": np.full((1, 1, 1), size),
                "bias_0": np.zeros((1, 1)),
                "weight_1": np.full((1, 1, 1), 1 / size),
                "bias_1": np.zeros((1, 1)),
            },
        )
    )


def cap(lower=0.0, upper=1.0):
    return Linear(Box([lower], [upper]), [[1.0]], 1.0 + ROOM, "<=", name="cap")


def test_what_the_checker_proves_is_proven_and_can_be_recorded(tmp_path):
    ensemble = tiny_units(1.0)
    answer = certify(ensemble, cap())
    assert answer.status == "proven"
    assert answer.checked
    record_certified(ensemble, cap(), certification=answer)
    write_certificate(tmp_path / "file", ensemble, requirement=cap(), certification=answer)
    check(tmp_path / "file")


def test_what_the_checker_rejects_is_unknown_and_says_why(tmp_path):
    ensemble = tiny_units(1e-11)
    search = certify(ensemble, cap(), verify=False)
    assert search.status == "proven"
    assert not search.checked
    answer = certify(ensemble, cap())
    assert answer.status == "unknown"
    assert {proof.status for proof in answer.rules} == {"unknown"}
    assert answer.exhausted
    assert "the checker says: not proven: rule 0 is bounded by" in answer.note
    assert "proven to exceed no limit" not in str(answer)
    said = report_unproven(Proposition(cap(), "a mixture", None, ["x"]), answer, tmp_path)
    assert said.startswith("UNKNOWN: cap is neither proven nor refuted")
    assert "the checker says" in said
    assert "--resume" not in said  # there is nothing to go on with


def test_the_time_limit_covers_the_check_which_can_be_gone_on_with(tmp_path, monkeypatch):
    ensemble, given = tiny_units(1.0), []

    def slow(data, *, time_limit_s, **rest):
        given.append(time_limit_s)
        return check(data, time_limit_s=0.0)

    with monkeypatch.context() as patched:
        patched.setattr(certificate, "check", slow)
        cut = certify(ensemble, cap(), time_limit_s=60.0)
    assert 0 < given[0] < 60.0
    assert cut.status == "unknown"
    assert not cut.checked
    assert "the time limit ended the check" in cut.note
    said = report_unproven(Proposition(cap(), "a mixture", None, ["x"]), cut, tmp_path)
    assert said.endswith("--resume")
    save_unfinished(tmp_path, ensemble, cap(), cut)
    again = certify(ensemble, cap(), resume=load_unfinished(tmp_path, ensemble, cap()))
    assert again.status == "proven"
    assert again.checked
    assert again.cells == cut.cells


def test_a_search_alone_is_neither_recorded_nor_written(tmp_path):
    ensemble = tiny_units(1e-11)
    search = certify(ensemble, cap(), verify=False)
    with raises(InvalidInput, "rejected", "checked"):
        record_certified(ensemble, cap(), certification=search)
    with raises(InvalidInput, "rejected", "certificate"):
        write_certificate(tmp_path / "file", ensemble, requirement=cap(), certification=search)
    assert not (tmp_path / "file").exists()


def test_a_proof_can_be_checked_later():
    ensemble = tiny_units(1.0)
    search = certify(ensemble, cap(), verify=False)
    later = verify_certification(search, ensemble, cap())
    assert later.status == "proven"
    assert later.checked
    assert verify_certification(later, ensemble, cap()) is later
    record_certified(ensemble, cap(), certification=later)


def test_the_region_that_was_asked_for_is_the_one_that_is_checked():
    ensemble = tiny_units(1.0)
    wide = cap(0.0, 5.0)  # false there
    assert certify(ensemble, wide).status == "refuted"
    answer = certify(ensemble, wide, region=Box([0.0], [1.0]))
    assert answer.status == "proven"
    assert answer.checked
    with raises(InvalidInput, "altered"):
        record_certified(ensemble, wide, certification=answer)


@pytest.mark.parametrize(("excess", "said"), [(-0.663, "0.663 within"), (0.5, "0.5 beyond")])
def test_progress_says_on_which_side_of_its_limit_a_bound_is(
    excess: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _shower("rule")(Progress(1, 2, 3, 4, excess, 6.0))
    assert f"worst bound {said} its limit" in capsys.readouterr().err
