"""Rules about a sum of trees: proven by cells, or refuted at inputs that the search finds.

Two kinds of questions: does the sum never fall at any threshold of a feature, and is a sum of its
outputs nowhere below a bound. Each is a number of searches for the least value of pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from cg4ai import __version__
from cg4ai.clock import now
from cg4ai.fitted_models.least import CutTree, Least, find_least
from cg4ai.fitted_models.model import FittedModel
from cg4ai.fitted_models.pieces import TreeSum, pick_number
from cg4ai.members.trees import TreeMembers
from cg4ai.proofs.structure_certificates import encode_claim, seal_arrays
from cg4ai.records import Array, IntArray
from cg4ai.runs import files

TOGETHER = 32  # candidates that are handed on at a time
FIRST_CELLS, GROWTH = 8, 8  # cells for each search at first, and how the number grows


@dataclass(frozen=True, eq=False)
class Job:
    """One search: a sum of outputs, and a threshold that a feature steps over, or a bound."""

    functional: Array
    feature: int = -1
    sign: int = 1
    threshold: float = 0.0
    bound: float = 0.0


@dataclass(frozen=True, eq=False)
class Candidate:
    """Inputs at which a rule seems to be broken, by `missed` in the model's scores."""

    inputs: Array
    missed: float


class SumAudit:
    """The searches that decide one rule about a model of trees over a region."""

    def __init__(
        self, model: FittedModel, jobs: Sequence[Job], trees: TreeSum, region: tuple[Array, Array]
    ) -> None:
        self.model, self.trees, self.jobs, self.region = model, trees, list(jobs), region
        self.found: list[Least | None] = [None] * len(self.jobs)

    @classmethod
    def of_steps(
        cls,
        model: FittedModel,
        functionals: Array,
        features: Sequence[tuple[int, int]],
        region: tuple[Array, Array],
    ) -> SumAudit:
        """Each functional (r,) of the scores never falls with a feature of sign 1, nor rises."""
        assert isinstance(model.members, TreeMembers)
        trees = TreeSum(model.members, *region)
        jobs = [
            Job(functional, feature, sign, threshold)
            for functional in functionals
            for feature, sign in features
            for threshold in trees.thresholds(feature)
        ]
        return cls(model, jobs, trees, region)

    @classmethod
    def of_values(
        cls, model: FittedModel, functionals: Array, bounds: Array, region: tuple[Array, Array]
    ) -> SumAudit:
        """Each functional of the scores is nowhere below its bound."""
        assert isinstance(model.members, TreeMembers)
        trees = TreeSum(model.members, *region)
        jobs = [
            Job(row, bound=float(bound)) for row, bound in zip(functionals, bounds, strict=True)
        ]
        return cls(model, jobs, trees, region)

    def search(self, until: float) -> Iterator[Candidate]:
        """Search all, at first a little, then more; yields what may break the rule, in groups.

        Of each group the worst comes first.
        """
        limit = FIRST_CELLS
        seen: dict[int, float] = {}  # by job, the least value that was yielded
        while True:
            fresh: list[tuple[float, int]] = []
            for number, job in enumerate(self.jobs):
                known = self.found[number]
                if known is not None and (known.proven or known.attained <= known.bound):
                    continue
                if now() > until:
                    break
                found = self._search(job, limit, until)
                self.found[number] = found
                if found.attained < seen.get(number, self._aim(job)):
                    seen[number] = found.attained
                    fresh.append((found.attained - self._aim(job), number))
                if len(fresh) >= TOGETHER:
                    yield from map(self._candidate, [at for _, at in sorted(fresh)])
                    fresh = []
            yield from map(self._candidate, [at for _, at in sorted(fresh)])
            if now() > until or not self._waiting():
                return
            limit *= GROWTH

    def _waiting(self) -> bool:
        return any(
            one is None or not (one.proven or one.attained <= one.bound) for one in self.found
        )

    def _aim(self, job: Job) -> float:
        return float(self._target(job))

    def _target(self, job: Job) -> Fraction:
        if job.feature >= 0:
            return Fraction(0)
        return self.trees.compute_target(job.functional, job.bound)

    def _search(self, job: Job, limit: int, until: float) -> Least:
        if job.feature >= 0:
            pieces = self.trees.find_step_pieces(
                job.functional, job.feature, job.threshold, job.sign
            )
        else:
            pieces = self.trees.find_value_pieces(job.functional)
        found = find_least(pieces, self._target(job), cell_limit=limit, until=until)
        return _with_features(found, pieces.used, self.trees)

    def _candidate(self, number: int) -> Candidate:
        job, found = self.jobs[number], self.found[number]
        assert found is not None
        point = np.array(
            [pick_number(float(a), float(b)) for a, b in zip(found.low, found.high, strict=True)]
        )
        points = point[None]
        if job.feature >= 0:
            others = [t for t in self.trees.thresholds(job.feature) if t > job.threshold]
            end = others[0] if others else float(self.trees.upper[job.feature])
            points = np.stack([point, point])
            points[0, job.feature] = job.threshold
            points[1, job.feature] = pick_number(job.threshold, end)
            if job.sign < 0:
                points = points[::-1]
        # rounding to float32 may have moved an end of the region outwards
        points = np.clip(points, *self.region)
        missed = (self._aim(job) - found.attained) * self.trees.factor
        return Candidate(points, missed)

    @property
    def proven(self) -> bool:
        return all(one is not None and one.proven for one in self.found)

    @property
    def cells(self) -> int:
        return sum(one.cells for one in self.found if one is not None)

    def compute_bound(self) -> float:
        """By how much the rule can be missed at most: between any two inputs, or at any one."""
        total: dict[tuple[bytes, int], float] = {}
        for job, found in zip(self.jobs, self.found, strict=True):
            missing = math.inf if found is None else max(0.0, self._aim(job) - found.bound)
            key = (job.functional.tobytes(), job.feature)
            if job.feature >= 0:
                total[key] = total.get(key, 0.0) + missing
            else:
                total[key] = max(total.get(key, 0.0), missing)
        for (functional, feature), value in total.items():
            if feature >= 0:
                crude = self._crude(np.frombuffer(functional), feature)
                total[functional, feature] = min(value, crude)
        return self.trees.factor * max(total.values(), default=0.0)

    def _crude(self, functional: Array, feature: int) -> float:
        """The spread of all trees that ask for the feature."""
        asks = (self.trees.inner & (self.trees.feature == feature)).any(axis=1)
        values = self.trees.value[asks] @ functional
        leaf = ~self.trees.inner[asks]
        most = np.where(leaf, values, -np.inf).max(axis=1)
        least = np.where(leaf, values, np.inf).min(axis=1)
        return float((most - least).sum())

    def build_certificate(
        self, requirement: str, title: str, features: Sequence[tuple[int, int]]
    ) -> bytes:
        """What the checker reads: the trees, what is claimed, and the cuts of every search."""
        state = self.model.members.state()
        by_steps = bool(features)
        functionals: list[Array] = []
        bounds: list[float] = []
        for job in self.jobs:
            if by_steps and any(np.array_equal(job.functional, one) for one in functionals):
                continue
            functionals.append(job.functional)
            bounds.append(job.bound)
        trees = [one.cuts.preorder() if one else CutTree().preorder() for one in self.found]
        feature = np.array([j for own, _ in trees for j in own], np.int64)
        value = np.array([v for _, own in trees for v in own], np.float64)
        start = np.cumsum([0, *(len(own) for own, _ in trees)])
        lower, upper = self.region
        claim = {
            "kind": "trees",
            "title": title,
            "requirement": requirement,
            "input_size": self.model.input_size,
            "output_size": self.model.output_size,
            "form": "monotone" if by_steps else "least",
            "features": [[int(j), int(sign)] for j, sign in features],
            "member": files.member_record(state),
            "made_by": {"cg4ai": __version__},
            "about": {"features": list(self.model.features), "outputs": list(self.model.outputs)},
        }
        arrays = files.member_arrays([state]) | {
            "lower": np.asarray(lower, np.float64),
            "upper": np.asarray(upper, np.float64),
            "functional": np.array(functionals, np.float64),
            "bound": np.array(bounds, np.float64),
            "cut_start": start.astype(np.int64),
            "cut_feature": feature,
            "cut_value": value,
        }
        return seal_arrays(arrays | {"claim": encode_claim(claim)})


def _with_features(found: Least, used: IntArray, trees: TreeSum) -> Least:
    """The cell of the least value in all features, not in those used alone."""
    middle = np.clip(np.zeros(len(trees.lower)), trees.lower, trees.upper)
    low, high = np.nextafter(middle, -np.inf), middle
    low[used], high[used] = found.low, found.high
    return replace(found, low=low, high=high)
