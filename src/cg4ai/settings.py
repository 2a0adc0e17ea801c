"""Settings of a run: frozen, checked on construction, all faults reported at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any, Literal, get_args

import torch

from cg4ai.errors import InvalidSettings, did_you_mean

Cuts = Literal["before", "after"]
FinalChoice = Literal["vertex", "loss", "uniform"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How the loop runs. Tolerances are absolute unless they say otherwise.

    epsilon: a member enters if its reduced cost is below minus this.
    gap_tolerance: an exact pricer's bound this close to the objective ends the run as OPTIMAL.
    feasibility_tolerance: slack and violations up to this count as met.
    row_margin: the master asks each row for this much more than its bound, and separation looks
        for inputs that lack more than half of it, so that recomputed predictions meet the bound.
    column_limit, iteration_limit, time_limit_s: the run ends with what it has. The time is for
        training and ending together: a share is kept for the ending, and what of it does not fit
        (`Result.cut`) is left out.
    patience: pricing rounds in a row without an improving member before the run ends.
    improvement_tolerance, improvement_window: with the rows met, the run ends as STALLED once the
        objective fell by less than this share of it over so many iterations (0: never).
    cuts: separate "before" pricing (the default), or "after" column generation has converged, as
        Algorithm 2 of the paper is printed.
    cut_rounds: separations in a row before members are priced again (cuts "before").
    cuts_per_round: at most this many new rows per requirement and separation.
    penalty, penalty_growth, penalty_limit: price of slack; it grows when nothing else improves.
    smoothing: weight of earlier duals in the duals that members are proposed by (0: none).
    uniform_share: share of those duals spread evenly over all rows.
    row_age_limit, column_age_limit: solves in a row without use before a row or column is set
        aside; it is still checked at every solve and comes back when needed.
    final_weights: "vertex" keeps the master's weights; "loss" takes the weights of least true
        loss, "uniform" those closest to uniform, among all that meet the rows.
    final_rounds: how often new violations of the final weights may send the loop back.
    lean: share of the objective (of 1, if it is smaller) that may be given up at the end for a
        mixture of fewer members, which predicts faster (0: none; for linear masters with
        final_weights "vertex").
    """

    epsilon: float = 1e-5
    gap_tolerance: float = 1e-6
    feasibility_tolerance: float = 1e-7
    row_margin: float = 1e-8
    column_limit: int = 400
    iteration_limit: int = 200
    time_limit_s: float = math.inf
    patience: int = 2
    improvement_tolerance: float = 0.0
    improvement_window: int = 3
    cuts: Cuts = "before"
    cut_rounds: int = 3
    cuts_per_round: int = 64
    penalty: float = 10.0
    penalty_growth: float = 10.0
    penalty_limit: float = 1e7
    smoothing: float = 0.5
    uniform_share: float = 0.1
    row_age_limit: int = 10
    column_age_limit: int = 20
    final_weights: FinalChoice = "loss"
    final_rounds: int = 20
    lean: float = 0.0
    seed: int = 0
    device: str = "cpu"

    def __new__(cls, *values: Any, **named: Any) -> Settings:
        """As usual, but unknown names are refused with the closest known one."""
        known = [field.name for field in fields(cls)]
        faults = [
            f"unknown setting {name!r}{did_you_mean(name, known)}"
            for name in named
            if name not in known
        ]
        if faults:
            raise InvalidSettings("; ".join(faults))
        return object.__new__(cls)

    def __post_init__(self) -> None:
        faults = [*self._number_faults(), *self._choice_faults()]
        if faults:
            raise InvalidSettings("; ".join(faults))
        for field in fields(self):  # 5.0 from a file and numpy's numbers become plain ones
            if field.type in ("int", "float"):
                plain = int if field.type == "int" else float
                object.__setattr__(self, field.name, plain(getattr(self, field.name)))

    def _number_faults(self) -> list[str]:
        ranges: dict[str, tuple[float, float]] = {
            "epsilon": (0, math.inf),
            "gap_tolerance": (0, math.inf),
            "feasibility_tolerance": (0, 1),
            "row_margin": (0, 1),
            "column_limit": (1, math.inf),
            "iteration_limit": (1, math.inf),
            "time_limit_s": (0, math.inf),
            "patience": (1, math.inf),
            "improvement_tolerance": (0, 1),
            "improvement_window": (1, math.inf),
            "cut_rounds": (1, math.inf),
            "cuts_per_round": (1, math.inf),
            "penalty": (1e-9, 1e9),  # a dummy costs a thousand times that, and 1e12 is the most
            "penalty_growth": (1.1, 1e6),
            "penalty_limit": (self.penalty if _is_number(self.penalty) else 0, 1e9),
            "smoothing": (0, 0.99),
            "uniform_share": (0, 1),
            "row_age_limit": (1, math.inf),
            "column_age_limit": (1, math.inf),
            "final_rounds": (0, math.inf),
            "lean": (0, 1),
            "seed": (0, 2**62),
        }
        faults = []
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            whole = next(f for f in fields(self) if f.name == name).type == "int"
            if not _is_number(value) or math.isnan(value) or (whole and value % 1 != 0):
                kind = "a whole number" if whole else "a number"
                faults.append(f"{name} must be {kind}, got {value!r}")
            elif not low <= value <= high:
                faults.append(f"{name} must lie in [{low:g}, {high:g}], got {value!r}")
        return faults

    def _choice_faults(self) -> list[str]:
        faults = []
        for name, known in (("cuts", get_args(Cuts)), ("final_weights", get_args(FinalChoice))):
            value = getattr(self, name)
            if value not in known:
                hint = did_you_mean(str(value), known)
                faults.append(f"{name} must be one of {', '.join(known)}, got {value!r}{hint}")
        if self.lean and self.final_weights != "vertex":
            faults.append(
                f'lean drops members of the master\'s own weights: final_weights must be "vertex", '
                f"got {self.final_weights!r}"
            )
        return [*faults, *self._device_faults()]

    def _device_faults(self) -> list[str]:
        kind, _, number = str(self.device).partition(":")
        if kind not in ("cpu", "cuda") or not (number.isdecimal() or self.device == kind):
            return [f"device must be cpu, cuda, cuda:0, cuda:1, ..., got {self.device!r}"]
        found = torch.cuda.device_count()
        if kind == "cuda" and int(number or 0) >= found:
            return [f"device is {self.device}, but torch sees {found} CUDA devices; use cpu"]
        return []

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Settings:
        """Settings from names and values; unknown names are refused with the closest known."""
        known = [field.name for field in fields(cls)]
        unknown = [name for name in values if name not in known]
        faults = [f"unknown setting {name!r}{did_you_mean(str(name), known)}" for name in unknown]
        try:
            settings = cls(**{name: value for name, value in values.items() if name in known})
        except InvalidSettings as error:
            faults.append(str(error))
        if faults:
            raise InvalidSettings("; ".join(faults))
        return settings

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
