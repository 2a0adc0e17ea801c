"""cvxpylayers #205: a layer of weights that sum to one and have a cap, the same at every call.

The request is about the solver CuClarabel on a GPU; here the default solver on a processor. The
best weights are the nearest point of the set to scores multiplied by a large number, and with a
smaller one the layer has gradients, which those of a linear program are not.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from cg4ai.nn import OutputSet
from cg4ai.rules import Range, SumTo
from experiments.wishes.common import Outcome, Wish, main

WISH = Wish(
    library="cvxpylayers",
    package="cvxpylayers",
    number=205,
    link="https://github.com/cvxpy/cvxpylayers/issues/205",
    asked="A layer whose solutions keep 0 <= x <= 0.002, sum(x) = 1, and do not change from run "
    "to run (asked of a GPU).",
    call="cg4ai.nn.OutputSet([SumTo(1.0), Range(0.0, 0.002)], output_size=n)",
)
SIZE, CAP, BATCH, SHARPNESS = 1000, 0.002, 20, 1e3


def run() -> Outcome:
    import cvxpy
    from cvxpylayers.torch import CvxpyLayer

    scores = torch.rand(BATCH, SIZE, generator=torch.Generator().manual_seed(0))
    best = scores.double().topk(round(1 / CAP), dim=1).values.sum(1) * CAP

    x, given = cvxpy.Variable(SIZE), cvxpy.Parameter(SIZE)
    problem = cvxpy.Problem(cvxpy.Maximize(given @ x), [x >= 0, x <= CAP, cvxpy.sum(x) == 1])
    layer = CvxpyLayer(problem, parameters=[given], variables=[x])
    start = time.process_time()
    there = layer(scores)[0].detach().double()
    solved = time.process_time() - start

    rules = [SumTo(1.0, name="shares"), Range(0.0, CAP, name="cap")]
    own = OutputSet(rules, output_size=SIZE)
    start = time.process_time()
    here = own(SHARPNESS * scores).detach()
    seconds = time.process_time() - start
    same = bool((own(SHARPNESS * scores).detach() == here).all())
    moving = scores.clone().requires_grad_()
    (own(0.01 * moving) * scores).sum().backward()

    def judge(values: torch.Tensor) -> tuple[float, float, float]:
        """How far numbers are outside [0, cap], sums off, and the optimum missed, at most."""
        values = values.double()
        outside = float(torch.maximum(-values, values - float(np.float32(CAP))).max().clamp(min=0))
        gap = float((values.sum(1) - 1).abs().max())
        return outside + 0.0, gap, float((1 - (values * scores).sum(1) / best).abs().max())

    outside, gap, lost = judge(there)
    mine, sums, rest = judge(here)
    return Outcome(
        there=f"on the processor, default solver: numbers up to {outside:.0e} outside "
        f"[0, {CAP}], sums off by up to {gap:.0e}, optimum by {lost:.0e}, {solved:.1f} s",
        fails=outside > 0,
        here=f"{mine:.0e} outside, sums off by up to {sums:.0e}, optimum by {rest:.0e}, "
        f"{seconds:.2f} s, {'the same' if same else 'not the same'} again, gradient up to "
        f"{float(moving.grad.abs().max()):.1e}",
        works=mine == 0 and sums < 1e-6 and same,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
