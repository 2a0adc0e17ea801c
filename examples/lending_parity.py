"""A lending classifier whose mean score differs little between two groups, beside Fairlearn's.

The two learn from different models (small networks, logistic regression), so compare what they
keep rather than their accuracies.

Run: python examples/lending_parity.py (needs the extra "dev", which holds Fairlearn)
"""

from __future__ import annotations

import numpy as np
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.linear_model import LogisticRegression

from cg4ai import ConstrainedClassifier
from cg4ai.rules import Rate

TOLERANCE = 0.02


def applicants(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(count, 4) features, (count,) repaid or not, (count,) group; the group is no feature."""
    random = np.random.default_rng(seed)
    group = random.integers(2, size=count)
    income = random.normal(0.5 * group, 1.0)
    debt = random.normal(-0.3 * group, 1.0)
    years = random.gamma(2.0, 1.0, count)
    district = random.normal(1.5 * group, 1.0)  # says more of the group than of the loan
    chance = 1.5 * income - debt + 0.4 * years + 0.2 * district - 1.0
    repaid = random.uniform(size=count) < 1 / (1 + np.exp(-chance))
    return np.stack([income, debt, years, district], axis=1), repaid.astype(int), group


def gap(values: np.ndarray, group: np.ndarray) -> float:
    """Difference of the two groups' means."""
    return float(abs(values[group == 1].mean() - values[group == 0].mean()))


def main() -> dict[str, float]:
    np.random.seed(0)  # noqa: NPY002 - Fairlearn's predict draws from NumPy's global generator
    X, y, group = applicants(1500, seed=0)
    X_test, y_test, group_test = applicants(4000, seed=1)

    plain = LogisticRegression().fit(X, y)
    # Fairlearn compares each group with the mean of all, so half the bound is the same rule for
    # two groups of equal size.
    fairlearn = ExponentiatedGradient(
        LogisticRegression(), DemographicParity(difference_bound=TOLERANCE / 2)
    )
    fairlearn.fit(X, y, sensitive_features=group)
    rule = Rate(X, group, tolerance=TOLERANCE, name="parity of mean scores")
    ours = ConstrainedClassifier(hidden=(8,), steps=150, iteration_limit=5, random_state=0)
    ours.fit(X, y, requirements=[rule])
    print(ours.result_, "\n")

    def fairlearn_scores(inputs: np.ndarray) -> np.ndarray:
        """Its probability of saying yes: the weighted vote of its predictors."""
        votes = [predictor.predict(inputs) for predictor in fairlearn.predictors_]
        return np.asarray(fairlearn.weights_) @ np.array(votes)

    models = {
        "plain": (lambda x: plain.predict_proba(x)[:, 1], plain.predict),
        "fairlearn": (fairlearn_scores, fairlearn.predict),
        "ours": (lambda x: ours.predict_proba(x)[:, 1], ours.predict),
    }
    numbers: dict[str, float] = {}
    print(f"tolerance {TOLERANCE}; gaps between the two groups, new data in brackets")
    print("             accuracy   gap of mean scores   gap of decisions   two calls differ at")
    for name, (scores, decide) in models.items():
        first, second = decide(X_test), decide(X_test)
        found = {
            "accuracy": float((first == y_test).mean()),
            "score_gap": gap(scores(X), group),
            "score_gap_new": gap(scores(X_test), group_test),
            "decision_gap": gap(decide(X), group),
            "decision_gap_new": gap(first, group_test),
            "calls_differ": float((first != second).sum()),
        }
        numbers |= {f"{name}_{what}": value for what, value in found.items()}
        print(
            f"{name:12s} {found['accuracy']:8.3f}   {found['score_gap']:.4f} "
            f"({found['score_gap_new']:.4f})      {found['decision_gap']:.4f} "
            f"({found['decision_gap_new']:.4f})   {found['calls_differ']:.0f} of {len(y_test)}"
        )
    print(
        "\nOurs binds mean scores, at the listed applicants, and decides the same way every time;\n"
        "its decisions are closer than the plain model's but not bound. Fairlearn binds the mean\n"
        "decision of a random draw among its predictors, so its decisions vary from call to call."
    )
    return numbers


if __name__ == "__main__":
    main()
