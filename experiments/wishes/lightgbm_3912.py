"""LightGBM #3912: monotone constraints that mean something with the multiclass objective."""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedClassifier
from cg4ai.rules import Monotone
from experiments.wishes.common import Outcome, Wish, draw_prices, falls, main, raised

WISH = Wish(
    library="LightGBM",
    package="lightgbm",
    number=3912,
    link="https://github.com/microsoft/LightGBM/issues/3912",
    asked="Monotone constraints for the multiclass objective: of the probabilities.",
    call="ConstrainedClassifier with Monotone({...}, ordered=True)",
)


def run() -> Outcome:
    from lightgbm import LGBMClassifier

    random = np.random.default_rng(0)
    x, y = draw_prices(random, 1000)
    fresh, truth = draw_prices(random, 20_000)
    more = raised(random, fresh, [0, 1])
    grades, true = (np.digitize(one, [1.0, 2.0, 3.0]) for one in (y, truth))

    there = LGBMClassifier(monotone_constraints=[1, 1, 0], n_jobs=1, verbose=-1).fit(x, grades)
    fell = falls(_at_least(there, fresh), _at_least(there, more))

    here = ConstrainedClassifier(members="boosting", random_state=0)
    here.fit(x, grades, requirements=[Monotone({0: +1, 1: +1}, ordered=True)])
    before, after = _at_least(here, fresh), _at_least(here, more)
    broken = falls(before, after)
    return Outcome(
        there=f"probability of grade k or higher falls at {fell:,} of {before.size:,} pairs; "
        f"accuracy {there.score(fresh, true):.3f}",
        fails=fell > 0,
        here=f"falls at {broken}; accuracy {here.score(fresh, true):.3f}",
        works=broken == 0,
    )


def _at_least(model: object, x: np.ndarray) -> np.ndarray:
    """The probabilities of grade 1, 2, 3 or higher."""
    shares = model.predict_proba(x)  # type: ignore[attr-defined]
    return np.asarray(shares[:, ::-1].cumsum(axis=1)[:, -2::-1])


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
