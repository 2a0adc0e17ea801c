"""A true claim is accepted; a false one, an altered one and one about another model are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import handmade
from cg4ai_checker import Cg4aiError, OutOfTime, Rejected, Unreadable, check, compare, verdict

ROOM = 0.05
TRUE = handmade.largest() + ROOM


def test_a_true_claim_is_proven() -> None:
    proven = check(handmade.certificate(TRUE))
    assert proven.leaves == 2**handmade.DEPTH
    assert handmade.largest() <= proven.bounds[0] <= TRUE
    assert "y below its limit" in str(proven)


@pytest.mark.parametrize("gap", [1e-9, 1e-3, 1.0])
def test_a_false_claim_is_rejected(gap: float) -> None:
    with pytest.raises(Rejected):
        check(handmade.certificate(handmade.largest() - gap))


def test_no_altered_byte_is_accepted() -> None:
    data = handmade.certificate(TRUE, depth=1)
    random = np.random.default_rng(0)
    for place in random.integers(0, len(data), 200).tolist():
        altered = bytearray(data)
        altered[place] ^= int(random.integers(1, 256))
        with pytest.raises(Rejected):
            verdict(bytes(altered))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", np.array([np.nan])),
        ("upper", np.array([9.0, 1.0])),
        ("upper", np.array([1.0, -1.0])),
        ("part0.weights", np.array([0.9])),
        ("part0.bias_1", np.array([[9.0]])),
        ("part0.weight_0", np.ones((1, 2, 2))),
        ("tree_dimension", np.array([0, -1], np.int16)),
        ("surplus", np.zeros(1)),
    ],
)
def test_other_arrays_with_a_fitting_digest_are_rejected(name: str, value: Any) -> None:
    claim, arrays = handmade.content(TRUE)
    with pytest.raises(Rejected):
        check(handmade.sealed(claim, {**arrays, name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("blocks", [[0, 0]]), ("rules", []), ("title", "two\nlines"), ("margin", -1.0), ("note", "")],
)
def test_another_claim_with_a_fitting_digest_is_rejected(name: str, value: Any) -> None:
    claim, arrays = handmade.content(TRUE)
    with pytest.raises(Rejected):
        check(handmade.sealed({**claim, name: value}, arrays))


def test_a_time_limit_is_no_verdict() -> None:
    with pytest.raises(OutOfTime):
        check(handmade.certificate(TRUE), time_limit_s=0.0)


def test_a_file_that_is_not_there_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        verdict(tmp_path / "none")
    assert issubclass(Unreadable, Cg4aiError)
    assert issubclass(Rejected, Cg4aiError)


# ---- folders -------------------------------------------------------------------------------------


def test_the_folder_holds_the_model_of_the_certificate(tmp_path: Path) -> None:
    handmade.write_folder(tmp_path)
    said = compare(check(handmade.certificate(TRUE)).claim, tmp_path)
    assert "members, weights and layout are equal" in said[0]


def test_a_folder_with_another_model_is_rejected(tmp_path: Path) -> None:
    other = np.nextafter(handmade.WEIGHTS["bias_1"], np.inf)
    handmade.write_folder(tmp_path, {**handmade.WEIGHTS, "bias_1": other})
    with pytest.raises(Rejected):
        compare(check(handmade.certificate(TRUE)).claim, tmp_path)


@pytest.mark.parametrize("name", ["ensemble.json", "members.safetensors"])
def test_a_damaged_folder_is_unreadable(name: str, tmp_path: Path) -> None:
    handmade.write_folder(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[-9] ^= 1
    (tmp_path / name).write_bytes(bytes(data))
    with pytest.raises(Unreadable):
        compare(check(handmade.certificate(TRUE)).claim, tmp_path)


# ---- what it depends on --------------------------------------------------------------------------


def test_nothing_but_numpy_and_scipy_is_needed() -> None:
    """In a process where cg4ai and what it needs cannot be imported."""
    hidden = ["cg4ai", "torch", "sklearn", "highspy", "clarabel", "typer", "rich", "safetensors"]
    code = (
        "import sys, importlib, pkgutil\n"
        f"for name in {hidden}: sys.modules[name] = None\n"
        "import cg4ai_checker\n"
        "for one in pkgutil.iter_modules(cg4ai_checker.__path__):\n"
        "    importlib.import_module(f'cg4ai_checker.{one.name}')\n"
        "for name in cg4ai_checker.__all__: getattr(cg4ai_checker, name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_none_of_the_package() -> None:
    import cg4ai_checker

    with pytest.raises(AttributeError):
        cg4ai_checker.prove  # noqa: B018
    assert set(cg4ai_checker.__all__) <= set(dir(cg4ai_checker))
