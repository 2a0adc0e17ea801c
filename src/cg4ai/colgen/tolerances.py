"""How exactly the loop works: what counts as met, as closed and as optimal."""

FEASIBILITY_TOLERANCE = 1e-7  # slack and violations up to this share of a row's size count as met
GAP_TOLERANCE = 1e-6  # share of the objective (or usual cost) by which a bound may lie below it
