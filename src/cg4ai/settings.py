"""Settings stated once: a dataclass field says its range and help, and one place checks them all.

`Settings` is how the loop runs; each application has a class of its own, made the same way. Command
lines are generated from them (`cg4ai.cli.options`). Nothing heavy is imported here, so that help
answers at once.
"""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from cg4ai.errors import InvalidSettings, did_you_mean

Cuts = Literal["before", "after"]
Guarantee = Literal["every input", "shielded", "attacked"]
FinalChoice = Literal["vertex", "loss", "uniform"]

_HINTS: dict[type, dict[str, Any]] = {}  # reading them takes longer than all checks
MOST_THREADS = 256
MOST_UNITS = 4096  # of a hidden layer: members are trained in stacks, and more would fill memory


# ---- one setting --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What a setting's field says beside its name, type and default.

    least, most: its range, for several numbers that of each. `check` gives a fault in words, or "".
    option: its name on the command line, "" if it has none there (`--set NAME=VALUE` sets it);
    argument: it is given by its place. `read` turns the text of a command line into the value.
    names: it holds values of the settings of this class by name. `zero`: what 0 stands for.
    former: its name in the version before, which is still accepted, with a warning.
    """

    help: str = ""
    least: float = -math.inf
    most: float = math.inf
    metavar: str | None = None
    option: str | None = None
    argument: bool = False
    read: Callable[[str], Any] | None = None
    names: type | None = None
    check: Callable[[Any], str] | None = None
    zero: str = ""
    former: str = ""


def setting(default: Any = MISSING, about: str = "", **further: Any) -> Any:
    """A field of a settings class; see `SettingInfo` for what can be said of it."""
    return field(default=default, metadata={"about": SettingInfo(about, **further)})


def hidden_setting(default: Any = MISSING, **further: Any) -> Any:
    """A setting without an option of its own."""
    return setting(default, option="", **further)


def get_setting_info(one: Field[Any]) -> SettingInfo:
    said: SettingInfo = one.metadata.get("about", SettingInfo(option=""))
    return said


def format_setting(kind: type, name: str, value: Any) -> Any:
    """The value of a setting as people read it: what 0 stands for, where it is no number."""
    said = next((get_setting_info(one) for one in fields(kind) if one.name == name), None)
    zero = said is not None and said.zero and value == 0 and not isinstance(value, bool)
    return said.zero if said is not None and zero else value


def get_type_hints_of(kind: type) -> dict[str, Any]:
    """The types of a settings class by name."""
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def without_none(hint: Any) -> Any:
    """The type that is left of `T | None`."""
    if get_origin(hint) in (Union, types.UnionType):
        left = [one for one in get_args(hint) if one is not type(None)]
        return left[0] if len(left) == 1 else hint
    return hint


# ---- names of earlier versions ------------------------------------------------------------------


def former_names(kind: type) -> dict[str, str]:
    """The settings of a class that were renamed: their names by those of the version before."""
    said = {one.name: get_setting_info(one).former for one in fields(kind)}
    return {former: name for name, former in said.items() if former}


def warn_of_former(former: str, name: str) -> str:
    """What is said where a former name is used, of a setting or of an option."""
    return f"{former} is called {name} now; the former name will be refused from version 0.9 on"


def rename_former(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by the names of today, those of settings inside of others, too."""
    today = former_names(kind)
    twice = [former for former, name in today.items() if former in values and name in values]
    if twice:
        raise InvalidSettings(
            "; ".join(f"{one} is the former name of {today[one]}; give one" for one in twice)
        )
    inner = {one.name: get_setting_info(one).names for one in fields(kind)}
    renamed = {today.get(name, name): value for name, value in values.items()}
    for name, value in renamed.items():
        held = inner.get(name)
        if held is not None and isinstance(value, Mapping):
            renamed[name] = rename_former(held, value)
    return renamed


def _known_inside(kind: type, name: str, value: Any) -> Any:
    """A stored value; of one that holds settings, those that still exist."""
    inner = next(get_setting_info(one).names for one in fields(kind) if one.name == name)
    if inner is None or not isinstance(value, Mapping):
        return value
    known = get_type_hints_of(inner)
    return {one: held for one, held in value.items() if one in known}


# ---- checking -----------------------------------------------------------------------------------


class CheckedSettings:
    """Parent of settings classes: unknown names and wrong values are refused, all at once."""

    __slots__ = ()

    def __new__(cls, *values: Any, **named: Any) -> Self:
        unknown = _unknown(cls, named)
        if unknown:
            raise InvalidSettings("; ".join(unknown))
        return object.__new__(cls)

    def __post_init__(self) -> None:
        faults = [fault for one in fields(self) if (fault := _fault(self, one))]  # type: ignore[arg-type]
        faults += self.inconsistencies() if not faults else []
        if faults:
            raise InvalidSettings("; ".join(faults))

    def inconsistencies(self) -> list[str]:
        """What is wrong with values that are right one by one."""
        return []

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Settings from names and values; unknown names are refused with the closest known.

        Former names are accepted, with a `FutureWarning`.
        """
        for former, name in former_names(cls).items():
            if former in values:
                warnings.warn(warn_of_former(former, name), FutureWarning, stacklevel=2)
        values = rename_former(cls, values)
        faults = _unknown(cls, values)
        known = {name: value for name, value in values.items() if name in get_type_hints_of(cls)}
        settings = None
        try:
            settings = cls(**known)
        except InvalidSettings as error:
            faults.append(str(error))
        if faults or settings is None:
            raise InvalidSettings("; ".join(faults))
        return settings

    @classmethod
    def from_stored(cls, values: Mapping[str, Any]) -> Self:
        """Settings that an earlier run was started with, to show what it made or to predict by it.

        What versions before called otherwise is renamed; what no longer exists is left out.
        """
        renamed = rename_former(cls, values)
        known = [one.name for one in fields(cls) if one.name in renamed]  # type: ignore[arg-type]
        return cls(**{name: _known_inside(cls, name, renamed[name]) for name in known})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload,no-any-return]


def _unknown(kind: type, named: Mapping[str, Any]) -> list[str]:
    known = [one.name for one in fields(kind)]
    today = {name: f" (it is called {now} now)" for name, now in former_names(kind).items()}
    return [
        f"unknown setting {name!r}{today.get(name) or did_you_mean(str(name), known)}"
        for name in named
        if name not in known
    ]


def _fault(settings: CheckedSettings, one: Field[Any]) -> str:
    """What is wrong with one value, in words; a right one is made plain (5.0 becomes 5)."""
    said, hint = get_setting_info(one), get_type_hints_of(type(settings))[one.name]
    value, kind = getattr(settings, one.name), without_none(hint)
    if value is None and kind is not hint:
        return ""
    if isinstance(value, list | tuple) and get_origin(kind) is tuple:
        value = tuple(value)
        inner = get_args(kind)[0]
        found = [fault for part in value if (fault := _one_fault(one.name, part, inner, said))]
        fault = found[0] if found else ""
    elif said.check is not None:
        fault = said.check(value)
    else:
        fault = _one_fault(one.name, value, kind, said)
    if not fault:
        object.__setattr__(settings, one.name, _plain(value, kind))
    return fault


def _one_fault(name: str, value: Any, kind: Any, said: SettingInfo) -> str:
    if get_origin(kind) is Literal:
        known = get_args(kind)
        hint = did_you_mean(str(value), known)
        wrong = value not in known
        return f"{name} must be one of {', '.join(known)}, got {value!r}{hint}" if wrong else ""
    if kind in (int, float):
        if not _is_number(value) or math.isnan(value) or (kind is int and value % 1 != 0):
            word = "a whole number" if kind is int else "a number"
            return f"{name} must be {word}, got {value!r}"
        if not said.least <= value <= said.most:
            return f"{name} must {_range(said)}, got {value!r}"
    elif kind is bool and not isinstance(value, bool):
        return f"{name} must be true or false, got {value!r}"
    elif kind is str and not isinstance(value, str):
        return f"{name} must be text, got {value!r}"
    elif kind is Path and not isinstance(value, str | Path):
        return f"{name} must be the path of a file, got {value!r}"
    elif get_origin(kind) is tuple and not isinstance(value, tuple):
        return f"{name} must be a list, got {value!r}"
    return ""


def _range(said: SettingInfo) -> str:
    if math.isinf(said.most):
        return f"be at least {said.least:g}"
    if math.isinf(said.least):
        return f"be at most {said.most:g}"
    return f"lie in [{said.least:g}, {said.most:g}]"


def _plain(value: Any, kind: Any) -> Any:
    """A number of NumPy or from a file as Python's own, a text as the path it stands for."""
    if kind in (int, float, Path):
        return kind(value)
    if isinstance(value, tuple) and get_args(kind) and get_args(kind)[0] in (int, float):
        return tuple(get_args(kind)[0](part) for part in value)
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def device_fault(device: Any) -> str:
    """What is wrong with the name of a device; torch is asked about other than cpu only."""
    kind, _, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or not (number.isdecimal() or device == kind):
        return f"device must be cpu, cuda, cuda:0, cuda:1, ..., got {device!r}"
    if kind == "cuda":
        import torch

        found = torch.cuda.device_count()
        if int(number or 0) >= found:
            return f"device is {device}, but torch sees {found} CUDA devices; use cpu"
    return ""


def jobs_fault(jobs: Any, called: str = "n_jobs") -> str:
    """What is wrong with a number of jobs; None is left to joblib."""
    if _is_number(jobs) and jobs % 1 == 0 and jobs != 0:
        return ""
    return (
        f"{called} must be a whole number but 0, got {jobs!r}: 2 for two jobs at a time, -1 for as "
        "many as there are cores"
    )


def jobs_setting(text: str) -> Any:
    return setting(
        None, text, check=lambda jobs: jobs_fault(jobs, "jobs"), option="--jobs", metavar="N"
    )


# ---- what all runs have -------------------------------------------------------------------------


def seed_setting(text: str = "The same seed trains the same members.") -> Any:
    return setting(0, text, least=0, most=2**62)


def device_setting() -> Any:
    return setting("cpu", "cpu or cuda.", check=lambda device: device_fault(device))


def threads_setting() -> Any:
    return setting(
        None,
        "CPU threads; OMP_NUM_THREADS, or as many as there are cores, at most 2, if not given.",
        least=1,
        most=MOST_THREADS,
    )


def time_limit_setting() -> Any:
    return setting(
        math.inf,
        "Bounds the whole command, from reading to report; the result says first what was cut.",
        least=1e-6,
        option="--time-limit",
        metavar="SECONDS",
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(CheckedSettings):
    """The options of a run that are not about what to train: where to, and what to show."""

    out: Path | None = setting(None, "New folder for the run.", metavar="DIR")
    resume: bool = setting(False, "Continue the run in DIR; nothing else need be given.")
    force: bool = setting(False, "Replace an earlier run in DIR.")
    quiet: bool = setting(False, "Show no progress.")
    json: bool = setting(False, "Progress and result as JSON lines on stdout.")
    verbose: bool = setting(False, "Print the details of the result, too.")
    no_report: bool = setting(False, "Write no report.html, which takes about a second.")
    log_tensorboard: Path | None = setting(
        None, "Write each iteration there for TensorBoard to show.", metavar="DIR"
    )

    def inconsistencies(self) -> list[str]:
        faults = []
        if self.resume and self.force:
            faults.append("--resume continues a run, --force replaces it; give one of them")
        if self.out is None and (self.resume or self.force):
            faults.append("--resume and --force need --out, the folder of the run")
        return faults


# ---- the loop -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings(CheckedSettings):
    """How the loop runs. Tolerances of rows are shares of a row's size, that of its bound.

    epsilon: a member enters if its reduced cost is below minus this.
    row_margin: the master asks each row for this share of its size more than its bound, and
        separation looks for inputs that lack more than half of it, so that recomputed predictions
        meet the bound.
    column_limit, iteration_limit, time_limit_s: the run ends with what it has. The time is for
        training and ending together: a share is kept for the ending, and what of it does not fit
        is left out. `Result.cut` names all that time ended or left out; where it is empty the
        same settings and seed give the same result on a slow and on a fast machine.
    patience: pricing rounds in a row without an improving member before the run ends.
    improvement_tolerance, improvement_window: with the rows met, the run ends as STALLED once the
        objective fell by less than this share of it over so many iterations (0: never).
    training_rounds: with the rows met, members are trained in at most so many iterations without
        the rules, and in as many under them (0: any number).
    cuts: separate "before" pricing (the default), or "after" column generation has converged, as
        Algorithm 2 of the paper is printed; `Settings.paper()` is its whole recipe.
    cut_rounds: separations in a row before members are priced again (cuts "before").
    cuts_per_round: at most this many new rows per requirement and separation.
    penalty, penalty_limit: price of slack, and what it grows to when nothing else improves. It is
        in the unit of the objective: 1, or, where costs are usually below 1e-2 or above 1e6, a
        power of two near them; in a small unit it is dearer, by its root.
    smoothing: weight of earlier duals in the duals that members are proposed by, of which a tenth
        is spread evenly over all rows; 0: the master's own duals.
    final_weights: "vertex" keeps the master's weights; "loss" takes the weights of least true
        loss, "uniform" those closest to uniform, among all that meet the rows.
    guarantee: "every input" keeps rules over regions by shields of the members, wherever an anchor
        exists; what is left to the master the estimators and `cg4ai train` try to prove
        afterwards, in a number of cells that takes a free core some seconds. "shielded" refuses
        problems without an anchor; "attacked" leaves all to the master, as rows where a search
        finds them broken.
    single_model: one member of each block in place of a mixture: after the mixture, whose objective
        bounds it, further members are trained that meet the rows on their own. The limits on
        members and iterations are for both in turn, half of the time limit is for each.
    final_rounds: how often new violations of the final weights may send the loop back.
    estimate_restarts: where no bound is proven, members trained from so many starts at the final
        duals, by about a tenth of the run's training, estimate how far from optimal it is (0: it
        is not estimated).
    prune: share of the objective (of 1, if it is smaller) that may be given up at the end for a
        mixture of fewer members, which predicts faster (0: none; for linear masters with
        final_weights "vertex"). An objective of several groups of scenarios may lose that share of
        its mean over each of them, too, at most.
    n_jobs: how many searches for violated inputs go on at a time, in processes: of several
        requirements, or of the rules (links, classes) of one that `BlackBox` searches. The result
        is the same for any number. None: 1, or what `joblib.parallel_config` says.
    """

    epsilon: float = setting(1e-5, least=0)
    row_margin: float = setting(1e-8, least=0, most=1)
    column_limit: int = setting(400, least=1)
    iteration_limit: int = setting(200, least=1)
    time_limit_s: float = setting(math.inf, least=0)
    patience: int = setting(2, least=1)
    improvement_tolerance: float = setting(0.0, least=0, most=1)
    improvement_window: int = setting(3, least=1)
    training_rounds: int = setting(0, least=0)
    cuts: Cuts = setting("before")
    cut_rounds: int = setting(3, least=1)
    cuts_per_round: int = setting(64, least=1)
    # a dummy costs a thousand times the penalty, and 1e12 is the most a cost may be
    penalty: float = setting(10.0, least=1e-9, most=1e9)
    penalty_limit: float = setting(1e7, least=0, most=1e9)
    smoothing: float = setting(0.5, least=0, most=0.99)
    guarantee: Guarantee = setting("every input")
    final_weights: FinalChoice = setting("loss")
    single_model: bool = setting(False)
    final_rounds: int = setting(20, least=0)
    estimate_restarts: int = setting(8, least=0)
    prune: float = setting(0.0, least=0, most=1, former="lean")
    seed: int = seed_setting()
    device: str = device_setting()
    n_jobs: int | None = setting(None, check=lambda jobs: jobs_fault(jobs))

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """Algorithm 2 as the paper prints it; `changes` are settings by name.

        Members are priced by the master's own duals until none improves, then the most violated
        input becomes a row, and so on; the weights are those of the last master, and rules over
        regions stay with it. The rest of the recipe is the problem's: an objective of kind
        "average", members trained by their reduced cost alone, and `plain_first=False`.
        """
        recipe: dict[str, Any] = {
            "guarantee": "attacked",
            "epsilon": 1e-6,
            "patience": 1,
            "cuts": "after",
            "cuts_per_round": 1,
            "smoothing": 0.0,
            "final_weights": "vertex",
            "final_rounds": 0,
        }
        return cls(**(recipe | changes))

    def inconsistencies(self) -> list[str]:
        faults = []
        if self.penalty_limit < self.penalty:
            faults.append(
                f"penalty_limit must lie in [{self.penalty:g}, 1e+09], got {self.penalty_limit!r}"
            )
        if self.prune and self.final_weights != "vertex":
            faults.append(
                f"prune drops members of the master's own weights: final_weights must be "
                f'"vertex", got {self.final_weights!r}'
            )
        return faults
