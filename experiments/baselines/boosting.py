"""LPBoost (Demiriz, Bennett and Shawe-Taylor, 2002): weights of largest soft margin by an LP.

Members give probabilities, so their margins `p_y - max over c != y of p_c` lie in [-1, 1]. The LP
    maximise rho - 1/(nu n) sum_j xi_j
    subject to sum_i lambda_i margin_ij + xi_j >= rho,  sum_i lambda_i = 1,  lambda, xi >= 0
weighs them; its duals weigh the images for the next learners. It ends when no new learner has a
larger weighted margin than the LP's bound, or at the limit on members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from cg4ai.errors import SolverFailure
from cg4ai.members import NetworkMembers
from cg4ai.protocols import Parameters
from cg4ai.records import Array
from cg4ai.rules.labels import member_margins
from cg4ai.seeds import derive_seed
from cg4ai.solvers.highs import OPTIMAL, LinearProgram
from experiments.baselines.records import (
    BaselineData,
    BaselineSettings,
    Fitted,
    Method,
    Predict,
    training_grid,
)
from experiments.baselines.stacks import Model, Stack, cross_entropy, mixture_predictor

EDGE_TOLERANCE = 1e-6  # a learner must beat the LP's bound by more
NUS = (0.05, 0.2, 0.5)


@dataclass(frozen=True)
class MarginWeights:
    """Solution of the LP: member weights, soft margin `objective`, image weights (sum 1), bound.

    A learner with `image_weights . margins > bound` would raise the objective.
    """

    weights: Array
    objective: float
    image_weights: Array
    bound: float


class MarginProgram:
    """The LP above, to which members are added; each solve starts from the last."""

    def __init__(self, count: int, nu: float) -> None:
        self._count = count
        self._members = 0
        self._program = LinearProgram(1e-9)
        convexity = np.append(np.zeros(count), 1.0)
        upper = np.append(np.full(count, np.inf), 1.0)
        self._program.add_rows(convexity, upper, sparse.csr_array((count + 1, 0)))
        # rho first, then the slacks; margins, and with them rho, are at least -1
        start = sparse.hstack(
            [
                sparse.csc_array(np.append(-np.ones(count), 0.0)[:, None]),
                sparse.vstack([sparse.eye_array(count), sparse.csc_array((1, count))]),
            ],
            format="csc",
        )
        costs = np.append(-1.0, np.full(count, 1.0 / (nu * count)))
        self._program.add_columns(costs, np.append(-1.0, np.zeros(count)), start)

    def add(self, margins: Array) -> None:
        """margins (members, images) in [-1, 1]."""
        columns = np.vstack([margins.T, np.ones(len(margins))])
        zeros = np.zeros(len(margins))
        self._program.add_columns(zeros, zeros, sparse.csc_array(columns))
        self._members += len(margins)

    def solve(self) -> MarginWeights:
        ending = self._program.run(primal=True)
        if ending.status != OPTIMAL:
            raise SolverFailure(
                f"HiGHS answered {ending.status} to the program of LPBoost with "
                f"{self._members} members and {self._count} images; expected {OPTIMAL}"
            )
        found = self._program.solution()
        return MarginWeights(
            found.values[1 + self._count :],
            -self._program.objective(),
            np.maximum(found.duals[: self._count], 0.0),
            -float(found.duals[self._count]),
        )


def probability_margins(members: NetworkMembers, data: BaselineData) -> Array:
    """Margins of each member at the training images, float64: (members, n)."""
    with torch.inference_mode():
        outputs = members.outputs(torch.as_tensor(data.inputs, device=members.device))
    result: Array = member_margins(outputs, data.labels).cpu().numpy()
    return result


def learners(
    data: BaselineData, models: Sequence[Model], image_weights: Array, *, seed: int
) -> NetworkMembers:
    """A stack of learners on weighted cross-entropy; augmented copies count alike."""
    stack = Stack(data, models, seed=seed)
    weights = torch.as_tensor(image_weights, dtype=torch.float32, device=stack.labels.device)

    def loss(parameters: Parameters, step: int) -> Tensor:
        logits = stack.logits(parameters, stack.inputs)
        weighted = cross_entropy(logits, stack.labels) @ weights
        return weighted + stack.task_loss(parameters) if stack.augmented else weighted

    stack.train(loss)
    return stack.members()


def boost(data: BaselineData, settings: BaselineSettings, *, seed: int) -> Fitted:
    """Column generation on the LP, `per_round` learners at a time."""
    # learners give probabilities whatever the rule: LPBoost needs bounded margins
    learner = replace(settings, rule="probability", threshold=0.5, target=None)
    count = len(data.labels)
    program = MarginProgram(count, settings.nu)
    parts: list[NetworkMembers] = []
    image_weights, bound, trained, note = np.full(count, 1.0 / count), -np.inf, 0, "member limit"
    while (held := sum(map(len, parts))) < settings.members:
        size = min(settings.per_round, settings.members - held)
        models = [Model(learner, trained + index) for index in range(size)]
        proposed = learners(data, models, image_weights, seed=derive_seed(seed, trained, "boost"))
        trained += size
        margins = probability_margins(proposed, data)
        better = np.flatnonzero(margins @ image_weights > bound + EDGE_TOLERANCE)
        if not len(better):
            note = "no new learner improves the margin"
            break
        program.add(margins[better])
        parts.append(proposed.take(better))
        solved = program.solve()
        image_weights, bound = solved.image_weights, solved.bound
    members = NetworkMembers.concatenate(parts)
    weights = np.maximum(solved.weights, 0.0) / np.maximum(solved.weights, 0.0).sum()
    predict = mixture_predictor(members, weights)
    active = int((weights > 0).sum())
    return Fitted(
        predict if settings.rule == "probability" else _logarithms(predict),
        members,
        weights,
        f"{active} of {len(members)} members with weight; ended: {note}",
    )


def _logarithms(predict: Predict) -> Predict:
    """Logits of mixed probabilities, so that margins compare with those of other baselines."""

    def logits(inputs: Array) -> Array:
        return np.log(np.maximum(predict(inputs), np.finfo(np.float64).tiny))

    return logits


def fit_boosting(
    data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
) -> list[Fitted]:
    return [
        boost(data, settings, seed=derive_seed(seed, repeat, "repeat"))
        for settings in candidates
        for repeat in range(repeats)
    ]


def boosting_grid(base: BaselineSettings) -> list[BaselineSettings]:
    """Weaker learners leave more to boost, so that short training is a candidate too."""
    fast = training_grid(base)[1]
    short = replace(fast, training=replace(fast.training, steps=max(1, fast.training.steps // 5)))
    nus = dict.fromkeys((base.nu, *NUS))
    return [replace(way, nu=nu) for way in (base, fast, short) for nu in nus]


BOOSTING = Method(
    "LPBoost",
    fit_boosting,
    boosting_grid,
    ("members", "nu", "per_round"),
)
