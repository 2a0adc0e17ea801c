"""Remembers what a result does not carry: all members in order, and all perturbed images found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cg4ai.colgen.pricing.defaults import WrappingPricer
from cg4ai.colgen.pricing.probes import Probe
from cg4ai.compile.problem import Problem
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import concatenate, restore
from cg4ai.members.mixture import Part
from cg4ai.protocols import Members, Pricer, PricingRequest
from cg4ai.records import Array, IntArray, IterationRecord, PricingResult
from cg4ai.rules.rows import LinearRows, Rows
from cg4ai.runs.folder import Run
from experiments.digits.data import PIXELS
from experiments.digits.separation import Withstand


class Journal:
    """Listens to the pricer and the loop; a resumed run begins with what its checkpoint holds."""

    def __init__(self, problem: Problem, run: Run | None) -> None:
        self.problem = problem
        self.members: list[Members] = [members for members, _ in problem.start]
        self.proposed: Members | None = None
        self.cuts: list[Rows] = list(problem.start_rows)
        self.heard: list[Rows] = []  # since the last iteration; what audits find stays here
        saved = None if run is None else run.load_checkpoint()
        if saved is None:
            return
        self.members = [restore(state, None) for state in saved.members]
        self.cuts = []
        for number, entry in enumerate(saved.meta["work"]["batches"]):
            requirement = problem.requirements[entry["requirement"]]
            if isinstance(requirement, Withstand):
                inputs = saved.arrays[f"rows{number}.inputs"]
                index = saved.arrays.get(f"rows{number}.index")  # linear rows share inputs
                which = saved.arrays[f"rows{number}.origin"][:, 1]
                rows = inputs if index is None else inputs[index]
                self.cuts.append(requirement.rows_at(rows, which, entry["requirement"]))

    def listen(self) -> Problem:
        """The same problem, whose pricer and separator also tell the journal what they found."""
        pricers = tuple(_Listening(pricer, self) for pricer in self.problem.pricers)
        requirements = tuple(
            replace(requirement, heard=self.heard)
            if isinstance(requirement, Withstand)
            else requirement
            for requirement in self.problem.requirements
        )
        return replace(self.problem, pricers=pricers, requirements=requirements)

    def iteration(self, record: IterationRecord) -> None:
        """Keep the cuts, and the last proposal if it was admitted: groups enter whole or not."""
        if record.added_columns and self.proposed is not None:
            self.members.append(self.proposed)
        self.proposed = None
        self.cuts.extend(self.heard)
        self.heard.clear()

    def average(self, layout: Layout) -> Ensemble:
        """The uniform average of all members that were admitted."""
        members = self.all_members()
        count = len(members)
        part = Part(members, np.zeros(count, np.int64), np.full(count, 1.0 / count))
        return Ensemble((part,), layout)

    def all_members(self) -> Members:
        joined = concatenate(self.members)
        assert joined is not None  # all are networks of one architecture
        return joined

    def perturbed(self) -> tuple[Array, IntArray]:
        """Distinct perturbed images that became rows, and the images they come from."""
        inputs, which = [np.empty((0, PIXELS))], [np.empty(0, np.int64)]
        for rows in self.cuts:
            assert rows.origin is not None
            index = rows.index if isinstance(rows, LinearRows) else None
            inputs.append(rows.inputs if index is None else rows.inputs[index])
            which.append(rows.origin[:, 1])
        found, source = np.concatenate(inputs), np.concatenate(which)
        keys = np.column_stack([np.round(found, 9), source])
        first = np.sort(np.unique(keys, axis=0, return_index=True)[1])
        return found[first], source[first]


@dataclass(frozen=True)
class _Listening(WrappingPricer):
    """A pricer whose last proposal the journal can see."""

    inner: Pricer
    journal: Journal

    def for_estimate(self, probe: Probe) -> Pricer:
        """Proposals for an estimate do not enter the run: nobody listens."""
        return self.inner.for_estimate(probe)

    def price(self, request: PricingRequest) -> PricingResult:
        result = self.inner.price(request)
        self.journal.proposed = result.members
        return result
