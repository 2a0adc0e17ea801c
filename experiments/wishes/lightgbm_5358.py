"""LightGBM #5358: inputs that break a monotone constraint ("advanced"), found and mended."""

from __future__ import annotations

import numpy as np

from cg4ai import audit_model, repair
from cg4ai.rules import Monotone
from experiments.wishes.common import Outcome, Wish, draw_missing, falls, main

WISH = Wish(
    library="LightGBM",
    package="lightgbm",
    number=5358,
    link="https://github.com/microsoft/LightGBM/issues/5358",
    asked='A score falls although the feature that rises is constrained (method "advanced").',
    call="audit_model(model, Monotone({...})), repair(model, Monotone({...}))",
)


def run() -> Outcome:
    from lightgbm import LGBMClassifier

    random = np.random.default_rng(0)
    x, y = draw_missing(random, 3000)
    there = LGBMClassifier(
        monotone_constraints=[0, 1, 1, 1, 1, 1],
        monotone_constraints_method="advanced",
        colsample_bytree=0.8,
        n_estimators=60,
        n_jobs=1,
        random_state=0,
        verbose=-1,
    ).fit(x, y)

    rising = Monotone([0, 1, 1, 1, 1, 1])
    (found,) = audit_model(there, rising).findings
    if found.inputs is None:
        return Outcome(f"audit: {found.status}", False, "nothing to mend", True)
    scores = there.predict(np.asarray(found.inputs), raw_score=True)
    fall = float(scores[0] - scores[1])

    mended = repair(there, rising, method="leaves")
    fresh, truth = draw_missing(random, 20_000, missing=0.0)
    more = fresh.copy()
    more[:, 1:] += random.exponential(0.3, (len(fresh), 5))
    chance = mended.predict_proba(fresh)[:, 1]
    broken = falls(chance, mended.predict_proba(more)[:, 1])
    return Outcome(
        there=f"score {scores[0]:.3f} falls to {scores[1]:.3f} at the inputs that the audit found",
        fails=fall > 0,
        here=f"audit: refuted; repaired: {broken} of {len(fresh):,} pairs fall; accuracy "
        f"{((chance > 0.5) == truth).mean():.3f} (was {there.score(fresh, truth):.3f})",
        works=found.status == "refuted" and fall > 0 and broken == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
