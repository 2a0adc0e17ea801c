"""How exactly the loop works: what counts as met, as closed and as optimal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cg4ai.settings import Settings

FEASIBILITY_TOLERANCE = 1e-7  # slack and violations up to this share of a row's size count as met
GAP_TOLERANCE = 1e-6  # share of the objective (or usual cost) by which a bound may lie below it


def get_cut_tolerance(settings: Settings) -> float:
    """By how much an input must break a rule, in units of the row, to become a cut."""
    return FEASIBILITY_TOLERANCE - settings.row_margin / 2
