"""Rules that cannot all hold: irreducible infeasible subsets (IIS) of them."""

from cg4ai.conflicts.conflict import Conflict, Scope
from cg4ai.conflicts.outputs import contradiction

__all__ = ["Conflict", "Scope", "contradiction"]
