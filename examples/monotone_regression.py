"""House prices that never fall with area and stay within bounds, at every input there is.

The data mislead: a few of the largest houses are ruins that sold cheaply, so a plain model learns
that large houses are cheap. The rules say what is known of houses in good repair.

Run: python examples/monotone_regression.py
"""

from __future__ import annotations

import numpy as np

from cg4ai import ConstrainedRegressor
from cg4ai.rules import Difference, Monotone, Range, Requirement

AREA = (40.0, 240.0)  # square metres
AGE = (0.0, 60.0)  # years
FLOOR, CEILING = 100.0, 700.0  # thousands: what the lender accepts


def houses(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(count, 2) areas and ages, few of them large, and (count,) fair prices in thousands."""
    random = np.random.default_rng(seed)
    area = AREA[0] + (AREA[1] - AREA[0]) * random.beta(1.2, 2.0, count)
    age = random.uniform(*AGE, count)
    price = 240 + 430 * np.tanh((area - AREA[0]) / 90) - 2.0 * age
    return np.stack([area, age], axis=1), price


def sales(count: int, seed: int, ruins: int) -> tuple[np.ndarray, np.ndarray]:
    """Houses with the prices that were paid: noisy, and 300 less for the largest, all ruins."""
    X, price = houses(count, seed)
    paid = price + np.random.default_rng(seed + 1).normal(0, 40, count)
    paid[np.argsort(-X[:, 0])[:ruins]] -= 300
    return X, paid


def grid(steps: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Houses on a grid, and every pair of neighbours that differ in area alone."""
    areas, ages = np.linspace(*AREA, steps), np.linspace(*AGE, 5)
    inputs = np.array([(area, age) for age in ages for area in areas])
    pairs = [(k, k + 1) for k in range(len(inputs)) if (k + 1) % steps]
    return inputs, pairs


def main() -> dict[str, float]:
    X, y = sales(80, seed=0, ruins=6)
    X_test, y_test = houses(2000, seed=2)
    rules: list[Requirement] = [
        Monotone({0: +1}, name="price rises with area"),
        Range(FLOOR, CEILING, name="price within bounds"),
    ]

    plain = ConstrainedRegressor(hidden=(24,), iteration_limit=6, random_state=0).fit(X, y)
    ruled = ConstrainedRegressor(hidden=(24,), iteration_limit=6, random_state=0)
    ruled.fit(X, y, requirements=rules)

    numbers: dict[str, float] = {}
    inputs, pairs = grid(401)  # an honest look, which knows nothing of how members are built
    for name, model in (("plain", plain), ("ruled", ruled)):
        listed = model.audit(Difference(inputs, pairs))
        price = model.predict(inputs)
        outside = float(max(price.max() - CEILING, FLOOR - price.min()))
        error = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
        numbers |= {
            f"{name}_error": error,
            f"{name}_falls": float(len(listed.violated)),
            f"{name}_worst_fall": listed.worst_violation,
            f"{name}_out_of_bounds": outside,
        }
        print(f"{name} model: root mean square error {error:.1f} on {len(y_test)} new sound houses")
        print(f"  price falls at {len(listed.violated)} of {len(pairs)} pairs of houses,")
        print(f"  by {max(0.0, listed.worst_violation):.2g} at most,")
        print(f"  and leaves its bounds by {max(0.0, outside):.2g}")
    print()
    print(ruled.result_)
    return numbers


if __name__ == "__main__":
    main()
