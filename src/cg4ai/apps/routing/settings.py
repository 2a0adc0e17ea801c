"""What a routing run can be told: how to train, for which network, with what guarantee."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from cg4ai.errors import InvalidInput
from cg4ai.settings import (
    MOST_UNITS,
    Checked,
    device_setting,
    hidden_setting,
    seed_setting,
    setting,
    threads_setting,
    time_limit_setting,
)

RoutingObjective = Literal["mlu", "split", "cost"]
SeparatorName = Literal["ascent", "nlopt", "mip"]  # the last is refused with its reason
Guarantee = Literal["attacked", "certified", "shielded"]
MembersName = Literal["network", "tree", "both"]
JOINT, EACH = (64, 64), (32,)  # hidden layers of a network for all demands, or for each
TREES = 4  # grown one after the other, each for what the others leave
MOST_STEPS = 4000  # of a network for all demands, however many
LEAN = 0.005  # the objective that fewer members may cost; on fresh demands they cost far less


def sizes_of(text: str) -> tuple[int, ...]:
    """Hidden layer sizes from the text of an option."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isdecimal() and len(part) < 20 for part in parts):
        raise InvalidInput(f"hidden must be layer sizes such as 32 or 32,16, got {text!r}")
    return tuple(int(part) for part in parts)


def load_of(text: str) -> float | None:
    """The option --load: a number, or none for the volumes as they are."""
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(
            f"load must be a number above 0 and at most 1, or none, got {text!r}"
        ) from None


@dataclass(frozen=True, kw_only=True)
class Recipe(Checked):
    """How routers are trained; the defaults are one set for all networks, found by measurement.

    hidden: sizes of the hidden layers; skip: a linear path beside them.
    stages: how often a network for all demands corrects its splits by the loads that they cause.
    scenarios: demand vectors over which the master takes the mean MLU.
    priced: demand vectors solved for dual prices at most, from which the optimum of any other is
        known closely enough to find those that a router serves worst.
    first_steps, later_steps, batch_size: gradient steps of the first group of members and of each
        later one, and fresh demand vectors per step.
    rounds: groups of members at most, or trees; training ends before when the objective hardly
        falls.
    members: what splits demands; with both, networks and trees are trained in turns.
    starts, ascent_steps: of the separation inside the loop, per arc.

    No layers, and 0 steps, vectors or rounds, stand for the usual (`completed`): what a network for
    all demands needs differs from what one for each demand does.

    On a GPU what runs side by side is nearly free and what is launched is not: there half as many
    later groups take twice the steps, attacks come less often, from four times the starts and
    with half the ascent steps.
    """

    objective: RoutingObjective = setting(
        "mlu", "mlu, split (distance to optimal splits) or cost (of paths)."
    )
    separator: SeparatorName = setting("ascent", "Search for overloads: ascent or nlopt.")
    hidden: tuple[int, ...] = setting(
        (),
        "Units of the hidden layers, e.g. 64,64.",
        least=1,
        most=MOST_UNITS,
        read=sizes_of,
        metavar="UNITS",
    )
    members: MembersName = setting(
        "network",
        "network, tree (one partition of the demands, a constant split per leaf) or both.",
    )
    leaves: int = setting(256, "Leaves of a tree, at most.", least=1, most=2**16)
    skip: bool = hidden_setting(True)
    stages: int = hidden_setting(3, least=1)
    scenarios: int = hidden_setting(300, least=1)
    priced: int = hidden_setting(5_000, least=1)
    first_steps: int = hidden_setting(0, least=0)
    later_steps: int = hidden_setting(0, least=0)
    batch_size: int = hidden_setting(0, least=0)
    rounds: int = hidden_setting(0, least=0)
    starts: int = hidden_setting(8, least=1)
    ascent_steps: int = hidden_setting(25, least=1)
    seed: int = seed_setting()
    device: str = device_setting()

    def inconsistencies(self) -> list[str]:
        """Exact separation, which knows no such rule, and trees for other objectives."""
        faults = []
        if self.members != "network" and self.objective != "mlu":
            faults.append(
                f"members {self.members} is for objective mlu, got {self.objective}: leaves of "
                "trees are programs of mean MLU; use members network"
            )
        if self.separator != "mip":
            return faults
        return [
            *faults,
            "separator mip states linear rules of ReLU networks with linear outputs; link loads "
            "are demand times share, which is bilinear, and shares come from a softmax: prove "
            "them in cells with guarantee certified, or search by ascent or nlopt",
        ]

    def completed(self, demands: int, *, joint: bool) -> Self:
        """The usual in place of what is not given; `joint`: one network for all demands.

        Such a network takes 1,000 steps and 125 for each demand, at most 4,000.
        """
        usual: dict[str, Any] = {"hidden": EACH, "first_steps": 3000, "later_steps": 1000}
        usual |= {"batch_size": 512, "rounds": 12}
        if joint:
            steps = min(MOST_STEPS, 1000 + 125 * demands)
            usual = {"hidden": JOINT, "first_steps": steps, "later_steps": steps // 2}
            usual |= {"batch_size": 256, "rounds": 2 if self.members == "network" else TREES}
        return replace(self, **{name: getattr(self, name) or usual[name] for name in usual})


@dataclass(frozen=True, kw_only=True)
class RouteSettings(Recipe):
    """What to train and measure.

    training_limit_s: bounds training alone, where the evaluation is to be whole.
    validation, attack_starts, attack_steps, attack_vectors, nlopt_starts, tight, timed,
    shield_inputs: how much the evaluation looks at.
    """

    network: str = setting(
        "", "SNDlib name, or a .txt, .xml, .graphml or .json file.", argument=True
    )
    demands: int | None = setting(
        None, "How many of the largest demands; 5, or all of --demand-file, if not given.", least=1
    )
    paths: int = setting(3, "Shortest paths per demand, at most.", least=1)
    load: float | None = setting(
        0.99,
        "Least possible utilisation at the largest demands; none: volumes as given.",
        least=1e-12,
        read=load_of,
    )
    demand_file: Path | None = setting(
        None, "Demands: source,target,volume; all of them.", metavar="FILE.csv"
    )
    guarantee: Guarantee = setting(
        "shielded",
        "shielded (corrected where a link would overload: every vector of the box is safe), "
        "certified (the same, proven of uncorrected networks) or attacked (none was found).",
    )
    layers: int | None = setting(None, "Hidden layers, all of one size.", least=1, most=16)
    lean: float | None = setting(
        None,
        f"MLU to give up for fewer members; {LEAN} if not given.",
        least=0,
        most=1,
        metavar="MLU",
    )
    single_model: bool = setting(
        False, "One network for all demands, or for each, in place of a mixture."
    )
    baseline: bool = setting(False, "Also train and measure plain networks of equal effort.")
    time_limit_s: float = time_limit_setting()
    training_limit_s: float = hidden_setting(math.inf, least=0)
    threads: int | None = threads_setting()
    validation: int = hidden_setting(10_000, least=1)
    attack_starts: int = hidden_setting(64, least=1)
    attack_steps: int = hidden_setting(60, least=1)
    attack_vectors: int = hidden_setting(10_000, least=1)
    nlopt_starts: int = hidden_setting(10, least=1)
    tight: int = hidden_setting(1000, least=1)
    timed: int = hidden_setting(1000, least=1)
    shield_inputs: int = hidden_setting(20_000, least=4)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers is not None and len(self.hidden) <= 1:
            width = self.hidden or (JOINT if self.joint else EACH)[:1]
            object.__setattr__(self, "hidden", width * self.layers)

    @property
    def joint(self) -> bool:
        """Whether a member splits all demands, as shielded networks and all trees do.

        Proofs of networks, and rows in the master, want one for each.
        """
        return self.guarantee == "shielded" or self.members == "tree"

    def inconsistencies(self) -> list[str]:
        faults = super().inconsistencies()
        if not self.network:
            faults.append("network is missing: give an SNDlib name or a file")
        if self.layers is not None and len(self.hidden) not in (0, 1, self.layers):
            faults.append(f"layers is {self.layers}, but hidden names {len(self.hidden)} layers")
        if self.guarantee == "certified" and self.objective != "mlu":
            faults.append(
                f"guarantee certified trains by the mlu objective, got {self.objective}; train "
                "without it and prove what came out with cg4ai certify"
            )
        faults += self._misplaced_trees()
        if self.single_model and self.guarantee == "certified":
            faults.append(
                "single_model chooses by rows of the master, guarantee certified by proofs; ask "
                "for another guarantee"
            )
        if self.lean and self.guarantee == "certified":
            faults.append(
                "lean has no meaning for guarantee certified, which chooses its weights otherwise; "
                "leave it out"
            )
        return faults

    def _misplaced_trees(self) -> list[str]:
        """Trees are proven or shielded, and do not mix with a network for each demand."""
        faults = []
        if self.members != "network" and self.guarantee == "attacked":
            faults.append(
                f"members {self.members} with guarantee attacked: trees are proven at once, ask "
                "for certified or shielded"
            )
        if self.members == "both" and self.guarantee == "certified":
            faults.append(
                "members both with guarantee certified: a proof wants a network for each demand, "
                "a tree splits all of them; use members tree, or guarantee shielded"
            )
        if self.members != "network" and self.baseline:
            faults.append("baseline trains plain networks beside networks; use members network")
        return faults
