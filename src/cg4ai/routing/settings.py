"""What a routing run can be told: how to train, for which network, with what guarantee."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from cg4ai.apps import (
    MOST_UNITS,
    CheckedSettings,
    device_setting,
    hidden_setting,
    jobs_setting,
    seed_setting,
    setting,
    threads_setting,
    time_limit_setting,
)
from cg4ai.routing.options import (
    AUTO,
    CAPACITIES_AUTO,
    MOST_PARTS,
    churn_fault,
    churn_of,
    demands_of,
    factor_fault,
    factor_of,
    fallback_of,
    load_of,
    ratio_of,
    sizes_of,
)
from cg4ai.routing.train import effort as sizes

RoutingObjective = Literal["mlu", "split", "cost"]
SeparatorName = Literal["ascent", "nlopt", "mip"]  # the last is refused with its reason
Guarantee = Literal["attacked", "certified", "shielded"]
MembersName = Literal["network", "tree", "both"]
AgentScope = Literal["own", "source", "all"]
Protocol = Literal["none", "paper"]
PathChoiceName = Literal["generated", "shortest", "disjoint"]
PAPER_LOAD = 0.99
JOINT, EACH = (64, 64), (32,)  # hidden layers of a network for all demands, or for each
LOCAL = (24, 24)  # of one for each demand behind a shield of its own
ROUNDS = 8  # networks for all demands, at most
TREES = 4  # grown one after the other, each for what the others leave
USUAL = "the usual"
USUAL_PRUNE = 5e-5  # share of the objective that fewer members may cost


@dataclass(frozen=True, kw_only=True)
class Recipe(CheckedSettings):
    """How routers are trained; the defaults are one set for all networks, found by measurement.

    hidden: sizes of the hidden layers.
    scenarios: demand vectors over which the master takes the mean MLU.
    priced: demand vectors solved for dual prices at most, from which the optimum of any other is
        known closely enough to find those that a router serves worst.
    first_steps, later_steps, batch_size: gradient steps of the first group of members and of each
        later one, and fresh demand vectors per step.
    rounds: groups of members at most, or trees; training ends before when the objective hardly
        falls.
    members: what splits demands; with both, networks and trees are trained in turns.
    agent_scope: which demands whoever splits one of them may read.

    No layers, and 0 steps, vectors or rounds, stand for the usual (`fill_defaults`): what a
    network for all demands needs differs from what one for each demand does.

    On a GPU what runs side by side is nearly free and what is launched is not: there half as many
    later groups take twice the steps, attacks come less often, from four times the starts and
    with half the ascent steps.
    """

    objective: RoutingObjective = setting(
        "mlu", "mlu, split (distance to optimal splits) or cost (of paths)."
    )
    separator: SeparatorName = setting(
        "ascent", "Search for overloads: ascent, or nlopt (the paper's, a job for each link)."
    )
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
    agent_scope: AgentScope = setting(
        "all",
        "What splits a demand reads: own (that demand), source (those of its node) or all.",
        former="sees",
    )
    leaves: int = setting(256, "Leaves of a tree, at most.", least=1, most=2**16)
    scenarios: int = hidden_setting(300, least=1)
    priced: int = hidden_setting(20_000, least=1)
    first_steps: int = hidden_setting(0, least=0, zero=USUAL)
    later_steps: int = hidden_setting(0, least=0, zero=USUAL)
    batch_size: int = hidden_setting(0, least=0, zero=USUAL)
    rounds: int = hidden_setting(0, least=0, zero=USUAL)
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
        if self.members != "network" and self.agent_scope != "all":
            faults.append(
                f"members {self.members} with agent_scope {self.agent_scope}: a tree divides the "
                "demands of all nodes at once; use members network"
            )
        if self.separator != "mip":
            return faults
        return [
            *faults,
            "separator mip states linear rules of ReLU networks with linear outputs; link loads "
            "are demand times share, which is bilinear, and shares come from a softmax: prove "
            "them in cells with guarantee certified, or search by ascent or nlopt",
        ]

    def fill_defaults(self, demands: int, *, joint: bool) -> Self:
        """The usual in place of what is not given; `joint`: one network for all demands.

        How many steps such a network takes says `sizes.joint_steps`.
        """
        usual: dict[str, Any] = {"hidden": EACH, "first_steps": 3000, "later_steps": 1000}
        usual |= {"batch_size": 512, "rounds": 12}
        if joint:
            wide = self.agent_scope == "all" and sizes.is_joint_wide(demands, self.device)
            steps = sizes.joint_steps(demands, wide=wide)
            hidden = JOINT if self.agent_scope == "all" else LOCAL
            usual = {"hidden": hidden, "first_steps": steps, "later_steps": steps // sizes.LATER}
            usual |= {
                "batch_size": sizes.joint_batch(
                    mixed=self.agent_scope == "all", wide=wide, demands=demands
                )
            }
            usual |= {"rounds": ROUNDS if self.members == "network" else TREES}
        return replace(self, **{name: getattr(self, name) or usual[name] for name in usual})


@dataclass(frozen=True, kw_only=True)
class RouteSettings(Recipe):
    """What to train and measure.

    training_limit_s: bounds training alone, where the evaluation is to be whole.
    validation: demand vectors at which the distance from optimal routing is measured; 0 stands for
    the usual, fewer where paths are many (`routing/train/effort.py`).
    """

    network: str = setting(
        "", "SNDlib name, or a .txt, .xml, .graphml, .json, .csv or .graph file.", argument=True
    )
    demands: int | None = setting(
        None,
        "How many of the largest demands, or all; 5, or all of --demand-file, if not given.",
        least=0,
        read=demands_of,
        zero="all",
    )
    paths: int = setting(3, "Paths per demand, at most.", least=1)
    path_choice: PathChoiceName | None = setting(
        None,
        "generated (those over which traffic is best routed; the usual), shortest (the usual of "
        "--protocol paper and objective cost) or disjoint (two without a common link, and the "
        "shortest others).",
    )
    max_hops: int | None = setting(None, "Links of a path, at most.", least=1, metavar="N")
    max_latency: float | None = setting(
        None,
        "Delay of a path, at most; links need the attribute delay.",
        least=1e-12,
        metavar="MS",
    )
    load: float | None = setting(
        0.99,
        "Worst utilisation over the set at best, to which demands are scaled; none: volumes as "
        "given. With --traffic nothing is scaled unless --scale-capacities asks for it.",
        least=1e-12,
        read=load_of,
    )
    protocol: Protocol = setting(
        "none",
        "paper: the protocol of the paper's tables, which is shortest paths, load 0.99 and the box "
        "from zero to the largest demands, whatever other defaults are.",
    )
    demand_file: Path | None = setting(
        None,
        "Demands: a .csv (source,target,volume, or a matrix) or .demands; all of them.",
        metavar="FILE",
    )
    priority_file: Path | None = setting(
        None,
        "Classes of demands: a .csv source,target,priority. Where not all can be carried, those of "
        "priority 1 are, then those of 2; demands that are not named come last.",
        metavar="FILE",
    )
    path_file: Path | None = setting(
        None, "Paths to use: source,target,node;node;node, or JSON lists of nodes.", metavar="FILE"
    )
    min_demand: float = setting(
        0.0,
        "Demands are at least this share of their largest; with --traffic: of the smallest seen.",
        least=0,
        most=0.999,
        metavar="SHARE",
        former="least",
    )
    hose: float | None = setting(
        None,
        "What a node sends in all, or receives, is at most this share of the sum of its largest "
        "demands.",
        least=1e-6,
        most=1,
        metavar="SHARE",
    )
    budget: float | None = setting(
        None,
        "All demands together are at most this share of the sum of the largest.",
        least=1e-6,
        most=1,
        metavar="SHARE",
    )
    traffic: Path | None = setting(
        None,
        "Measured traffic to learn from: a folder or archive of SNDlib's XML, a folder of "
        ".demands, .csv or .npz.",
        metavar="FILE",
    )
    split: str = setting(
        "0.7",
        "Where traffic is split: a time, or the share of earlier matrices; later ones judge.",
        metavar="TIME|SHARE",
    )
    cover: float = setting(
        1.0, "Share of the earlier matrices that the set contains.", least=0.01, most=1
    )
    headroom: float = setting(
        1.25, "Demands and node totals may grow to this multiple of what was seen.", least=0.01
    )
    no_hose: bool = setting(False, "With --traffic: no limits on what nodes send and receive.")
    scale_capacities: float | str | None = setting(
        None,
        "With --traffic: count every capacity as this multiple of what it is; auto: as the one at "
        "which the worst utilisation over the set is --load. Every result states it.",
        read=factor_of,
        check=lambda value: "" if value is None else factor_fault(value),
        metavar="FACTOR|auto",
    )
    history: int | None = setting(
        None,
        "With --traffic: read the last W matrices and split the next, which is not known then.",
        least=1,
        metavar="W",
    )
    failures: str | None = setting(
        None,
        "Then study failures: single, links such as A-B,C-D, or a .csv or .json file; needs --out.",
        metavar="WHICH",
    )
    guarantee: Guarantee = setting(
        "shielded",
        "shielded (corrected where a link would overload: every vector of the set is safe), "
        "certified (the same, proven of uncorrected networks) or attacked (none was found).",
    )
    ratio: float | None = setting(
        None,
        "No link ever above R times the optimum, proven; auto: the least R that --ratio-leaves "
        "give. Needs --min-demand.",
        least=0,  # which is auto
        read=ratio_of,
        zero="auto",
        metavar="R",
    )
    ratio_leaves: int | None = setting(
        None,
        "Cells of demands by which a ratio is proven, at most; the fewer, the more demands there "
        "are, if not given.",
        least=1,
        most=2**16,
        metavar="N",
    )
    fallback: float | None = setting(
        0.02,
        "Improve or solve answers whose proven gap to the optimum is larger, and solve those "
        "outside the set; none: the router's as they are.",
        least=0,
        read=fallback_of,
        metavar="GAP|none",
    )
    granularity: int | None = setting(
        None,
        "Answer with splits in multiples of 1/N that keep the capacities all the same.",
        least=1,
        most=MOST_PARTS,
        metavar="N",
    )
    churn: float | None = setting(
        None,
        "Change the path of at most this share of each demand between two successive answers, and "
        "of more only where a link would be overloaded; none: of any.",
        least=0,
        most=1,
        read=churn_of,
        metavar="SHARE|none",
    )
    prune: float | None = setting(
        None,
        f"MLU to give up for fewer members; {USUAL_PRUNE} if not given.",
        least=0,
        most=1,
        metavar="MLU",
        former="lean",
    )
    single_model: bool = setting(
        False, "One network for all demands, or for each, in place of a mixture."
    )
    baseline: bool = setting(False, "Also train and measure plain networks of equal effort.")
    jobs: int | None = jobs_setting(
        "With --separator nlopt: links searched at a time, each in a process; -1: all cores."
    )
    time_limit_s: float = time_limit_setting()
    training_limit_s: float = hidden_setting(math.inf, least=0)
    threads: int | None = threads_setting()
    validation: int = hidden_setting(0, least=0, zero=USUAL)

    def fill_sample_sizes(self, paths: int) -> Self:
        """The usual number of vectors to evaluate at, in place of one that is not given."""
        usual = sizes.count_affordable(sizes.VALIDATION, sizes.SOLVED, paths)
        return replace(self, validation=self.validation or usual)

    @property
    def joint(self) -> bool:
        """Whether a member splits all demands; only proofs of networks want one for each."""
        return self.guarantee != "certified" or self.members == "tree"

    def inconsistencies(self) -> list[str]:
        faults = super().inconsistencies()
        if not self.network:
            faults.append("network is missing: give an SNDlib name or a file")
        if self.guarantee == "certified" and self.objective != "mlu":
            faults.append(
                f"guarantee certified trains by the mlu objective, got {self.objective}; train "
                "without it and prove what came out with cg4ai certify"
            )
        if self.jobs is not None and self.separator != "nlopt":
            faults.append(
                "jobs are links that NLopt searches at a time, and ascent searches all links in "
                "one batch: leave out jobs, or search by separator nlopt"
            )
        faults += self._against_protocol()
        faults += self._misplaced_choice()
        faults += self._misplaced_trees()
        faults += self._misplaced_traffic()
        faults += self._misplaced_ratio()
        faults += self._misplaced_granularity()
        faults += self._misplaced_churn()
        faults += self._misplaced_priorities()
        if self.single_model and self.guarantee == "certified":
            faults.append(
                "single_model chooses by rows of the master, guarantee certified by proofs; ask "
                "for another guarantee"
            )
        if self.prune and self.guarantee == "certified":
            faults.append(
                "prune has no meaning for guarantee certified, which chooses its weights "
                "otherwise; leave it out"
            )
        return faults

    def _against_protocol(self) -> list[str]:
        """What the paper's protocol fixes and is asked otherwise."""
        if self.protocol == "none":
            return []
        asked = {
            "load": self.load != PAPER_LOAD,
            "path_file": self.path_file is not None,
            "path_choice": self.path_choice not in (None, "shortest"),
            "max_hops": self.max_hops is not None,
            "max_latency": self.max_latency is not None,
            "min_demand": self.min_demand != 0.0,
            "hose": self.hose is not None,
            "budget": self.budget is not None,
            "traffic": self.traffic is not None,
            "ratio": self.ratio is not None,
        }
        others = [name for name, differs in asked.items() if differs]
        if not others:
            return []
        return [
            f"protocol paper fixes shortest paths, load {PAPER_LOAD} and the box from zero to the "
            f"largest demands; leave out {', '.join(others)}, or the protocol"
        ]

    @property
    def chosen_paths(self) -> PathChoiceName:
        """What `path_choice` stands for where it is not given."""
        if self.path_choice is not None:
            return self.path_choice
        given = self.protocol == "paper" or self.path_file is not None
        return "shortest" if given or self.objective == "cost" else "generated"

    def _misplaced_choice(self) -> list[str]:
        """Ways to choose paths that contradict each other."""
        faults = []
        asked = [
            name
            for name in ("path_choice", "max_hops", "max_latency")
            if getattr(self, name) is not None
        ]
        if self.path_file is not None and asked:
            faults.append(
                f"path_file gives all paths, so that {', '.join(asked)} has nothing to choose; "
                "leave out one or the other"
            )
        if self.path_choice == "disjoint" and self.paths < 2:
            faults.append("path_choice disjoint needs at least 2 paths, got 1; ask for more")
        return faults

    def _misplaced_traffic(self) -> list[str]:
        """Traffic brings demands and their set, and is learned from through the shield."""
        if self.traffic is None:
            changed = (self.split, self.cover, self.headroom, self.no_hose) != (
                *("0.7", 1.0, 1.25, False),
            )
            wrong = "split, cover, headroom and no_hose are about traffic; give it, or leave them"
            alone = (
                "scale_capacities is about traffic: without it demands are scaled to the load, and "
                "capacities are as given; leave it out"
            )
            unread = "history is of measured traffic: give --traffic, or leave out history"
            return [
                *[wrong] * changed,
                *[alone] * (self.scale_capacities is not None),
                *[unread] * (self.history is not None),
            ]
        faults = [
            f"{name} is fitted to the traffic; leave it out"
            for name in ("demand_file", "hose", "budget")
            if getattr(self, name) is not None
        ]
        if self.scale_capacities == CAPACITIES_AUTO and self.load is None:
            faults.append("scale_capacities auto needs a load to scale to; leave out load none")
        usual = {"guarantee": "shielded", "objective": "mlu", "members": "network"}
        usual |= {"agent_scope": "all"}
        others = [
            f"{name} {getattr(self, name)}" for name in usual if getattr(self, name) != usual[name]
        ]
        if others:
            faults.append(
                "traffic is learned from by networks behind a shield that see all demands, for the "
                f"mlu; leave out {', '.join(others)}"
            )
        if self.history is not None and self.failures is not None:
            faults.append(
                "failures are studied for routers that know their demands; leave out failures or "
                "history"
            )
        return faults

    def _misplaced_ratio(self) -> list[str]:
        """A ratio is kept by a shield of networks, over a box of demands above zero."""
        if self.ratio is None:
            return (
                [] if self.ratio_leaves is None else ["ratio_leaves has no meaning without ratio"]
            )
        faults = []
        if AUTO < self.ratio < 1:
            faults.append(f"ratio must be at least 1, or {AUTO:g} for auto, got {self.ratio:g}")
        if self.guarantee != "shielded" or self.members != "network" or self.objective != "mlu":
            faults.append(
                "ratio is kept by a shield of networks that are trained by MLU: use guarantee "
                "shielded, members network and objective mlu"
            )
        if self.agent_scope != "all":
            faults.append(
                f"ratio with agent_scope {self.agent_scope}: how far the optimum is takes all "
                "demands to know; leave out one of the two"
            )
        if self.min_demand <= 0 or self.hose or self.budget or self.traffic is not None:
            faults.append(
                "ratio needs a box of demands above zero: give min_demand, e.g. 0.1 for demands of "
                "at least a tenth of their largest, and neither hose, budget nor traffic"
            )
        return faults

    def _misplaced_granularity(self) -> list[str]:
        """Rounded answers rest on the anchor of one shield for all demands."""
        if self.granularity is None:
            return []
        others = {
            f"guarantee {self.guarantee}": self.guarantee != "shielded",
            f"agent_scope {self.agent_scope}": self.agent_scope != "all",
            "ratio": self.ratio is not None,
            "history": self.history is not None,
        }
        wrong = [name for name, differs in others.items() if differs]
        if not wrong:
            return []
        return [
            "granularity is kept by checking each answer at its own demands, or else by the "
            "constant split that a shield moves all demands to; no ratio is proven of rounded "
            f"splits: leave out {', '.join(wrong)}"
        ]

    def _misplaced_churn(self) -> list[str]:
        """What an answer near the one before may not keep."""
        if self.churn is None:
            return []
        others = {
            f"agent_scope {self.agent_scope}": self.agent_scope != "all",
            "ratio": self.ratio is not None,
            "objective cost": self.objective == "cost",
        }
        wrong = [name for name, differs in others.items() if differs]
        faults = []
        if wrong:
            faults.append(
                "churn holds answers near the ones before, within the capacities: how far takes "
                "all demands to know, and no ratio or path cost is kept on the way; leave out "
                f"{', '.join(wrong)}, or churn"
            )
        if fault := churn_fault(self.churn, self.granularity):
            faults.append(fault)
        return faults

    def _misplaced_priorities(self) -> list[str]:
        """Priorities say what the fallback carries."""
        if self.priority_file is None:
            return []
        others = {
            "fallback none": self.fallback is None,
            f"agent_scope {self.agent_scope}": self.agent_scope != "all",
            "objective cost": self.objective == "cost",
            "history": self.history is not None,
            "granularity": self.granularity is not None,
        }
        wrong = [name for name, differs in others.items() if differs]
        if not wrong:
            return []
        return [
            "priority_file says what the fallback carries of demands that do not all fit, which "
            "takes all of them to know and splits of any size: leave out "
            f"{', '.join(wrong)}, or priority_file"
        ]

    def _misplaced_trees(self) -> list[str]:
        """Trees are proven or shielded, and do not mix with a network for each demand."""
        faults = []
        if self.members != "network" and self.guarantee == "attacked":
            faults.append(
                f"members {self.members} with guarantee attacked: trees are proven at once, ask "
                "for certified or shielded"
            )
        if self.members != "network" and (self.hose or self.budget):
            faults.append(
                f"members {self.members} beside limits on sums (hose, budget): leaves of trees are "
                "boxes and kept at their corners, where sums exceed their limits; use members "
                "network"
            )
        if self.members == "both" and self.guarantee == "certified":
            faults.append(
                "members both with guarantee certified: a proof wants a network for each demand, "
                "a tree splits all of them; use members tree, or guarantee shielded"
            )
        if self.members != "network" and self.baseline:
            faults.append("baseline trains plain networks beside networks; use members network")
        return faults
