"""scikit-learn #25703: monotone probabilities of several classes, each class its own signs."""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedClassifier
from cg4ai.rules import Monotone
from experiments.wishes.common import Outcome, Wish, draw_prices, falls, main, raised

WISH = Wish(
    library="scikit-learn",
    package="sklearn",
    number=25703,
    link="https://github.com/scikit-learn/scikit-learn/pull/25703",
    asked="`monotonic_cst` of HistGradientBoostingClassifier for three or more classes.",
    call="ConstrainedClassifier with Monotone({...}, output=...) for each class",
    state="closed unmerged: softmax does not keep it",
)


def run() -> Outcome:
    from sklearn.ensemble import HistGradientBoostingClassifier

    random = np.random.default_rng(0)
    x, y = draw_prices(random, 1000)
    fresh, truth = draw_prices(random, 20_000)
    more = raised(random, fresh, [0, 1])
    classes, true = (np.digitize(one, [1.5, 2.5]) for one in (y, truth))

    try:
        HistGradientBoostingClassifier(monotonic_cst=[1, 1, 0]).fit(x, classes)
        said = ""
    except ValueError as error:
        said = str(error)
    plain = HistGradientBoostingClassifier(random_state=0).fit(x, classes)

    here = ConstrainedClassifier(random_state=0)
    rules = [
        Monotone({0: -1, 1: -1}, output=0, name="low"),
        Monotone({0: +1, 1: +1}, output=2, name="high"),
    ]
    here.fit(x, classes, requirements=rules)
    before, after = here.predict_proba(fresh), here.predict_proba(more)
    broken = falls(-before[:, 0], -after[:, 0]) + falls(before[:, 2], after[:, 2])
    return Outcome(
        there=f"refused: {said}" if said else "accepted",
        fails=bool(said),
        here=f"{broken} of {2 * len(fresh):,} pairs fall; accuracy {here.score(fresh, true):.3f} "
        f"(scikit-learn without the rule {plain.score(fresh, true):.3f})",
        works=broken == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
