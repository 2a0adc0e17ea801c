"""One thread per test process: with several processes, more threads only get in each other's way.

Set before torch or NumPy is imported, and inherited by the programs that tests start. Reports take
half a second of each small run: those of tests/integration/test_reports.py must do. Compiled
modules are kept, where the environment says otherwise too: each process that tests start, and each
run of the suite, would compile the package and its tests again.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ["CG4AI_NO_REPORT"] = "1"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
gc.disable()  # what is collected stays: half a million objects, gone through again and again

# the same examples in every run, so that a suite that passed passes again; new ones are looked for
# with HYPOTHESIS_PROFILE=explore
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_configure(config: pytest.Config) -> None:
    # tests keep fits short by their limits; what else a fit warns of is an error in a test
    config.addinivalue_line("filterwarnings", "ignore:training was ended by:cg4ai.FitWarning")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with finished runs of all applications, to be read or copied, never changed."""
    from finished_runs import train_all  # heavy, and most tests need none

    folder = tmp_path_factory.mktemp("finished")
    train_all(folder)
    return folder


@pytest.fixture(scope="module")
def quick_evaluation() -> Iterator[pytest.MonkeyPatch]:
    """Routers are evaluated in a moment."""
    from quick_evaluation import evaluate_quickly  # heavy, and most tests need none

    with evaluate_quickly() as patch:
        yield patch


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the disk matters only in power cuts, which no test here can make."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
