"""LightGBM #6155: a saved model with 31 constrained features, judged from its file, and anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from cg4ai import ConstrainedClassifier, audit_model
from cg4ai.data import Array, IntArray
from cg4ai.rules import Monotone
from experiments.wishes.common import Outcome, Wish, falls, main

WISH = Wish(
    library="LightGBM",
    package="lightgbm",
    number=6155,
    link="https://github.com/microsoft/LightGBM/issues/6155",
    asked='A model file breaks its monotone constraints (31 features, method "advanced").',
    call="audit_model('model.txt', rule); ConstrainedClassifier with Monotone([...])",
)
SIGNS = [1, -1] + [1] * 24 + [-1] * 5  # those of the request


def draw(random: np.random.Generator, rows: int, missing: float) -> tuple[Array, IntArray]:
    x = random.exponential(1, (rows, len(SIGNS)))
    score = np.sqrt(x) @ (np.array(SIGNS) * random.permutation(np.linspace(0, 1, len(SIGNS))))
    y = (score - np.median(score) + random.logistic(size=rows) > 0).astype(int)
    x[random.random(x.shape) < missing] = np.nan
    return x, y


def run() -> Outcome:
    from lightgbm import Booster, LGBMClassifier

    random = np.random.default_rng(0)
    x, y = draw(random, 3000, missing=0.2)
    fresh = draw(random, 20_000, missing=0.0)[0]
    there = LGBMClassifier(
        monotone_constraints=SIGNS,
        monotone_constraints_method="advanced",
        n_estimators=60,
        n_jobs=1,
        verbose=-1,
    ).fit(x, y)
    rule = Monotone(SIGNS)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.txt")
        there.booster_.save_model(file)
        (found,) = audit_model(file, rule).findings
        saved = Booster(model_file=file)
    if found.inputs is None:
        return Outcome(f"audit: {found.status}", False, "nothing to show", True)
    scores = saved.predict(np.asarray(found.inputs), raw_score=True)
    fall = float(scores[0] - scores[1])

    here = ConstrainedClassifier(members="boosting", random_state=0)
    here.fit(x, y, requirements=[rule])
    more = fresh + np.array(SIGNS) * random.exponential(0.3, fresh.shape)
    before, after = here.predict_proba(fresh)[:, 1], here.predict_proba(more)[:, 1]
    broken = falls(before, after)
    return Outcome(
        there=f"score {scores[0]:.3f} changes to {scores[1]:.3f} at inputs found from the file",
        fails=found.status == "refuted",
        here=f"audit: refuted in {found.seconds:.1f} s; trained here {broken} of {len(fresh):,} "
        "pairs fall",
        works=found.status == "refuted" and fall > 0 and broken == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
