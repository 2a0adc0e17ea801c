"""A rule of another package: kept at listed inputs and over a region, audited and certified."""

import numpy as np
from extras_of_cg4ai.rule import Budget

from cg4ai import ConstrainedRegressor, certify
from cg4ai.rules import Box

made = np.random.default_rng(0)
x = made.uniform(-1, 1, (60, 2))
y = np.column_stack([1 + x[:, 0], 1 - x[:, 1]])

listed = Budget(x[:5], prices=[1.0, 1.0], limit=1.5, name="listed")
plain = ConstrainedRegressor(members="affine", random_state=0).fit(x, y)
planted = plain.ensemble_.audit(listed)
assert planted.satisfied < 5, "without the rule some of its rows are missed"

everywhere = Budget(Box([-1, -1], [1, 1]), prices=[1.0, 1.0], limit=3.0, name="everywhere")
model = ConstrainedRegressor(members="affine", random_state=0)
model.fit(x, y, requirements=[listed, everywhere])
assert model.ensemble_.audit(listed).satisfied == 5
assert (model.predict(made.uniform(-1, 1, (1000, 2))).sum(axis=1) <= 3.0 + 1e-9).all()
proof = certify(model.ensemble_, everywhere)
assert proof.status == "proven", proof
print("rule: kept and proven")
