"""Rules that cannot all hold: which ones contradict each other, and that none of them is spare."""

from cg4ai.conflicts.conflict import Conflict, Scope
from cg4ai.conflicts.outputs import contradiction

__all__ = ["Conflict", "Scope", "contradiction"]
