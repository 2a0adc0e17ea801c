"""What `cg4ai doctor` finds out: packages, devices, threads, and whether the core works.

All of it must be said of a broken installation, too, so that nothing is imported before it is
looked at, and whatever a package raises is a finding.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from cg4ai import clock
from cg4ai.extras import format_install_command

HIDDEN = (
    "all",
    "dev",
    "docs",
    "peers",
    "test",
    "wishes",
)  # extras for work on the package itself, and experiments
UNLISTED = ("mlflow", "pandas", "tensorboard")  # used where they are installed, in no extra
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*)(?:;.*extra == ['\"]([\w-]+)['\"])?")
OTHER_NAMES = {"mlflow": ("mlflow-skinny",), "xgboost-cpu": ("xgboost",)}  # that do as well


@dataclass(frozen=True)
class Package:
    """A package that cg4ai needs, or one of its extras; `version` is None where it is missing."""

    name: str
    needed: str
    version: str | None
    extra: str = ""
    core: bool = True

    @property
    def state(self) -> str:
        if self.version is None:
            return "missing"
        least = re.search(r">=\s*([\d.]+)", self.needed)
        old = least is not None and _numbers(self.version) < _numbers(least[1])
        return "too old" if old else "ok"

    @property
    def remedy(self) -> str:
        """The command that mends it; empty where nothing is amiss."""
        if self.state == "ok":
            return ""
        if self.core:
            return f"pip install '{self.name}{self.needed}'"
        return (
            f"pip install 'cg4ai[{self.extra}]'"
            if self.extra
            else format_install_command(self.name)
        )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def list_packages() -> list[Package]:
    """Those of the core, then of extras, then further ones that are used where they are."""
    try:
        stated = importlib.metadata.requires("cg4ai") or []
    except importlib.metadata.PackageNotFoundError:  # a source tree that was never installed
        stated = []
    found = []
    for text in stated:
        matched = REQUIREMENT.match(text)
        if matched is None:
            continue
        name, needed, extra = matched[1], matched[2].strip(), matched[3] or ""
        if extra not in HIDDEN and name != "cg4ai":
            found.append(Package(name, needed, _version(name), extra, core=not extra))
    found += [Package(name, "", _version(name), core=False) for name in UNLISTED]
    return sorted(found, key=lambda one: (not one.core, not one.extra, one.extra, one.name))


def _version(name: str) -> str | None:
    for known in (name, *OTHER_NAMES.get(name, ())):
        try:
            return importlib.metadata.version(known)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


# ---- the machine ---------------------------------------------------------------------------------


def describe_machine() -> dict[str, Any]:
    """Python, system, cores, threads, linear algebra and devices, by name."""
    from cg4ai import __version__

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "cg4ai": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "usable cores": usable,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        **_asked(_devices, "devices"),
        **_asked(_algebra, "linear algebra"),
    }


def _asked(work: Callable[[], dict[str, Any]], name: str) -> dict[str, Any]:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever a broken package raises is the finding
        return {name: f"unknown: {_line(error)}"}


def _devices() -> dict[str, Any]:
    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
        devices += [f"cuda:{k} {name}" for k, name in enumerate(names)]
    built = torch.version.cuda
    return {
        "devices": devices,
        "torch built for": f"CUDA {built}" if built else "CPU",
        "torch threads": torch.get_num_threads(),
    }


def _algebra() -> dict[str, Any]:
    import numpy  # noqa: F401 - its library is what is asked for
    from threadpoolctl import threadpool_info

    found = threadpool_info()
    libraries = [f"{one['internal_api']} {one['version'] or ''}".strip() for one in found]
    threads = [f"{one['num_threads']} threads" for one in found]
    pairs = zip(libraries, threads, strict=True)
    return {"linear algebra": sorted({f"{library}, {count}" for library, count in pairs})}


# ---- whether it works ----------------------------------------------------------------------------


@dataclass(frozen=True)
class InstallationCheck:
    """What was tried; `fault` says what went wrong, empty where it works."""

    name: str
    fault: str
    seconds: float


def run_checks() -> list[InstallationCheck]:
    """Everything tried, each although another failed."""
    return [
        _tried("Python 3.11 or newer", _python),
        _tried("IEEE 754 float64 in NumPy and torch", _float64),
        _tried("HiGHS solves a linear program", _highs),
        _tried("Clarabel solves a quadratic program", _clarabel),
        _tried("a model is trained under a rule, saved and loaded", _whole),
    ]


def _tried(name: str, work: Callable[[], str]) -> InstallationCheck:
    started = clock.now()
    try:
        fault = work()
    except Exception as error:  # noqa: BLE001 - whatever a broken package raises is the finding
        fault = _line(error)
    return InstallationCheck(name, fault, clock.now() - started)


def _line(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"


def _python() -> str:
    found = sys.version_info[:2]
    return "" if found >= (3, 11) else f"this is {found[0]}.{found[1]}"


def _float64() -> str:
    """Proofs round outwards, which needs sums that round to nearest and keep small numbers.

    Libraries that were compiled for speed alone switch the latter off for the whole process.
    """
    import numpy as np
    import torch

    epsilon, least = 2.0**-52, 2.0**-1074
    in_torch = partial(torch.tensor, dtype=torch.float64)
    for name, array in (("NumPy", np.array), ("torch", in_torch)):
        one, small = array([1.0]), array([2.0**-1022])
        if not bool(one + epsilon > one) or bool(one + epsilon / 2 != one):
            return f"{name} does not round 1 + 2^-53 to nearest"
        if not bool(small / 2 > 0) or not bool(array([least]) > 0):
            return f"{name} flushes small numbers to zero"
    return ""


def _highs() -> str:
    import numpy as np

    from cg4ai.colgen.master import LinearMaster

    # of the constants 0, 3 and 5 at costs 0, 9 and 25: the cheapest mixture that is at least 1
    master = LinearMaster(1, penalty=100.0)
    master.add_columns(np.array([0.0, 9.0, 25.0]), np.zeros(3, np.int64), np.zeros((0, 3)))
    master.add_rows(np.array([[0.0, 3.0, 5.0]]), np.array([1.0]), np.array([-1]))
    found = master.solve().objective
    return "" if abs(found - 3.0) < 1e-6 else f"the optimum is 3, it gave {found}"


def _clarabel() -> str:
    import numpy as np
    from scipy import sparse

    from cg4ai.solvers.conic import QuadraticProgram

    # the shortest of the points with x + y = 1
    rows = sparse.csc_matrix([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    program = QuadraticProgram(
        sparse.identity(2, format="csc"), np.zeros(2), rows, np.array([1.0, 0.0, 0.0]), 1
    )
    found = program.solve().x
    return "" if np.allclose(found, 0.5, atol=1e-6) else f"the optimum is (0.5, 0.5), not {found}"


def _whole() -> str:
    import numpy as np

    from cg4ai import ConstrainedRegressor, load
    from cg4ai.rules import Linear

    inputs = np.random.default_rng(0).normal(size=(60, 2))
    rule = Linear(inputs[:5], [1.0], 0.1, "<=", name="cap")
    model = ConstrainedRegressor(
        members="network", hidden=(4,), steps=20, iteration_limit=2, random_state=0
    )
    model.fit(inputs, inputs[:, 0] + inputs[:, 1], requirements=[rule])
    largest = float(model.predict(inputs[:5]).max())
    if not model.audit_[0].holds or largest > 0.1 + 1e-6:
        return f"predictions must be at most 0.1, one is {largest}"
    with tempfile.TemporaryDirectory() as folder:
        model.ensemble_.save(folder)
        same = np.array_equal(load(folder).predict(inputs), model.ensemble_.predict(inputs))
    return "" if same else "an ensemble predicts otherwise once it was saved and loaded"
