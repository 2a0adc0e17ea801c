"""Put right a named few of the cases that a plain model got wrong, and see what else changed.

Run: python examples/patch_misclassified.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from cg4ai import ConstrainedClassifier
from cg4ai.rules import Probability

NAMED = 6  # how many of the wrong cases must come right
AT_LEAST = 0.6  # probability of the right class there; above one half it is the decision


def main() -> dict[str, float]:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order] / 16, y[order]
    train, field, test = np.arange(600), np.arange(600, 1000), np.arange(1000, len(X))

    plain = ConstrainedClassifier(steps=150, iteration_limit=1, random_state=0)
    plain.fit(X[train], y[train])
    wrong = field[plain.predict(X[field]) != y[field]]
    named = wrong[:NAMED]
    print(f"the plain model reads {len(wrong)} of {len(field)} images in the field wrong;")
    print(f"these must come right: {named.tolist()}\n")

    rule = Probability(X[named], y[named], AT_LEAST, name="named images")
    patched = ConstrainedClassifier(steps=150, iteration_limit=5, random_state=0)
    patched.fit(X[train], y[train], requirements=[rule])
    print(patched.result_)

    before, after = plain.predict_proba(X[named]), patched.predict_proba(X[named])
    print("\nimage  truth  read before  read after  probability of the truth")
    for k, image in enumerate(named):
        one, two = before[k], after[k]
        truth = y[image]
        reading = f"{truth:6d}  {one.argmax():11d}  {two.argmax():10d}"
        print(f"{image:5d} {reading}  {one[truth]:.3f} -> {two[truth]:.3f}")

    # training again with another seed changes decisions too: the yardstick for the changes
    again = ConstrainedClassifier(steps=150, iteration_limit=1, random_state=1)
    again.fit(X[train], y[train])
    old, new, other = (model.predict(X[test]) for model in (plain, patched, again))
    numbers = {
        "named_right_before": float((before.argmax(1) == y[named]).sum()),
        "named_right_after": float((after.argmax(1) == y[named]).sum()),
        "least_probability": float(after[np.arange(len(named)), y[named]].min()),
        "test_accuracy_before": float((old == y[test]).mean()),
        "test_accuracy_after": float((new == y[test]).mean()),
        "changed": float((old != new).sum()),
        "made_right": float(((old != y[test]) & (new == y[test])).sum()),
        "made_wrong": float(((old == y[test]) & (new != y[test])).sum()),
        "changed_by_another_seed": float((old != other).sum()),
    }
    print(
        f"\nOn {len(test)} further images {numbers['changed']:.0f} decisions changed: "
        f"{numbers['made_right']:.0f} became right, {numbers['made_wrong']:.0f} wrong\n"
        f"(training the plain model with another seed changes "
        f"{numbers['changed_by_another_seed']:.0f}). Accuracy there "
        f"{numbers['test_accuracy_before']:.3f} before, {numbers['test_accuracy_after']:.3f} after."
    )
    return numbers


if __name__ == "__main__":
    main()
