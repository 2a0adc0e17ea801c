"""House prices that never fall with area at listed pairs, and stay within bounds over a region.

Run: python examples/monotone_regression.py
"""

from __future__ import annotations

import numpy as np

from cg4ai import Box, ConstrainedRegressor, Difference, Linear

AREA = (40.0, 240.0)  # square metres
AGE = (0.0, 60.0)  # years
FLOOR, CEILING = 100.0, 700.0  # thousands: what the lender accepts


def houses(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(count, 2) areas and ages, (count,) noisy prices in thousands; few large houses."""
    random = np.random.default_rng(seed)
    area = AREA[0] + (AREA[1] - AREA[0]) * random.beta(1.2, 3.0, count)
    age = random.uniform(*AGE, count)
    price = 80 + 3.2 * area - 2.0 * age + random.normal(0, 60, count)
    return np.stack([area, age], axis=1), price


def grid(steps: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Houses on a grid, and every pair of neighbours that differ in area alone."""
    areas, ages = np.linspace(*AREA, steps), np.linspace(*AGE, 5)
    inputs = np.array([(area, age) for age in ages for area in areas])
    pairs = [(k, k + 1) for k in range(len(inputs)) if (k + 1) % steps]
    return inputs, pairs


def main() -> dict[str, float]:
    X, y = houses(60, seed=0)
    X_test, y_test = houses(2000, seed=1)
    inputs, pairs = grid(41)
    region = Box([AREA[0], AGE[0]], [AREA[1], AGE[1]])
    rules = [
        Difference(inputs, pairs, 0.0, name="price rises with area"),
        Linear(region, [[1.0], [-1.0]], [FLOOR, -CEILING], name="price within bounds"),
    ]

    plain = ConstrainedRegressor(hidden=(24,), iteration_limit=3, random_state=0).fit(X, y)
    ruled = ConstrainedRegressor(hidden=(24,), iteration_limit=6, random_state=0)
    ruled.fit(X, y, requirements=rules)

    numbers: dict[str, float] = {}
    for name, model in (("plain", plain), ("ruled", ruled)):
        # a step ten times finer than the rule's pairs: an honest look between them
        fine, fine_pairs = grid(401)
        dense = model.ensemble_.audit(Difference(fine, fine_pairs))
        monotone, bounds = (model.ensemble_.audit(rule) for rule in rules)
        error = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
        numbers |= {
            f"{name}_error": error,
            f"{name}_falls": float(len(monotone.violated)),
            f"{name}_worst_fall": monotone.worst_violation,
            f"{name}_out_of_bounds": bounds.worst_violation,
            f"{name}_fine_falls": float(len(dense.violated)),
        }
        print(f"{name} model: root mean square error {error:.1f} on {len(y_test)} new houses")
        print(f"  price falls at {len(monotone.violated)} of the rule's {len(pairs)} pairs,")
        print(f"  and at {len(dense.violated)} of {len(fine_pairs)} pairs ten times closer")
        print(f"  {bounds}")
    print()
    print(ruled.result_)
    return numbers


if __name__ == "__main__":
    main()
