"""Cooper #105: the text of this request could not be read, so the wish is not counted as fulfilled.

What is compared is what people come with: a network whose outputs keep a limit. With multipliers
the limit is approached at the rows of training; a layer keeps it at every input of a region.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from cg4ai.nn import SequentialWithInput, Shield
from cg4ai.rules import AffineBound, Box, Linear
from experiments.wishes.common import Outcome, Wish, main

WISH = Wish(
    library="Cooper",
    package="cooper",
    number=105,
    link="https://github.com/cooper-org/cooper/issues/105",
    asked="Not read; compared here: a network's limit that holds at inputs it was not trained on.",
    call="cg4ai.nn.Shield(Linear(region, ...)) as the last layer of the network",
    state="not read",
)
READ = False  # whether the request is known to be this
STEPS, CHECKED = 1500, 200_000


def build(*last: nn.Module) -> SequentialWithInput:
    torch.manual_seed(0)
    return SequentialWithInput(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 2), *last)


def allowed(x: Tensor) -> Tensor:
    return 0.1 + x[:, 0]


def run() -> Outcome:
    random = torch.Generator().manual_seed(0)
    x, fresh = (torch.rand(rows, 3, generator=random) for rows in (300, CHECKED))
    y = x[:, :1] * torch.stack([x[:, 1], 1 - x[:, 1]], 1) + 0.1 * torch.sin(9 * x[:, 2:])
    there = train_with_cooper(x, y)

    limit = Linear(Box([0, 0, 0], [1, 1, 1]), [1.0, 1.0], AffineBound(0.1, [1.0, 0.0, 0.0]), "<=")
    here = build(Shield(limit, reference=y.mean(0).numpy()))
    optimiser = torch.optim.Adam(here.parameters(), lr=0.005)
    for _ in range(STEPS):
        optimiser.zero_grad()
        nn.functional.mse_loss(here(x), y).backward()
        optimiser.step()

    def judge(model: nn.Module, inputs: Tensor) -> tuple[int, float]:
        with torch.no_grad():
            beyond = model(inputs).double().sum(1) - allowed(inputs.double())
        return int((beyond > 0).sum()), float(beyond.max())

    trained, (above, largest), (kept, _) = (
        judge(there, x)[0],
        judge(there, fresh),
        judge(here, fresh),
    )
    fitted = [float(np.sqrt(nn.functional.mse_loss(one(x), y).item())) for one in (there, here)]
    return Outcome(
        there=f"a multiplier for each of {len(x)} rows: {trained} of them and {above:,} of "
        f"{CHECKED:,} new inputs above the limit, by up to {largest:.3f}, error {fitted[0]:.3f}",
        fails=above > 0,
        here=f"{kept} of {CHECKED:,} above, error {fitted[1]:.3f}"
        + ("" if READ else "; the request itself was not read"),
        works=READ and kept == 0,
    )


def train_with_cooper(x: Tensor, y: Tensor) -> nn.Module:
    import cooper

    model = build()

    class Limited(cooper.ConstrainedMinimizationProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.limit = cooper.Constraint(
                constraint_type=cooper.ConstraintType.INEQUALITY,
                formulation_type=cooper.formulations.Lagrangian,
                multiplier=cooper.multipliers.DenseMultiplier(num_constraints=len(x)),
            )

        def compute_cmp_state(self) -> cooper.CMPState:
            outputs = model(x)
            beyond = cooper.ConstraintState(violation=outputs.sum(1) - allowed(x))
            return cooper.CMPState(nn.functional.mse_loss(outputs, y), {self.limit: beyond})

    problem = Limited()
    optimiser = cooper.optim.AlternatingDualPrimalOptimizer(
        cmp=problem,
        primal_optimizers=torch.optim.Adam(model.parameters(), lr=0.005),
        dual_optimizers=torch.optim.SGD(
            problem.dual_parameters(), lr=10 * 0.005 / len(x), maximize=True
        ),  # as its documentation advises
    )
    for _ in range(STEPS):
        optimiser.roll()
    return model


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
