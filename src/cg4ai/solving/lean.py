"""Fewer members at the end of a run: what little weights are worth is asked of the master.

A vertex of the master gives many members small weights, which cost as much time at every
prediction as large ones do. They are barred, the master weighs the others anew, and what that
costs decides whether it stays so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cg4ai.master import LinearMaster
from cg4ai.records import MasterSolution
from cg4ai.solving.workspace import Workspace

SHARES = (0.2, 0.15, 0.1, 0.05, 0.02)  # weights below which members are left out, tried in turn


class Lean:
    """Bars members of a linear master while the others meet all rows and the objective allows.

    `share` of the objective may be given up. `solve` solves the master with every piece of the
    objective that matters, `unmet` says whether a solution leaves a row short.
    """

    def __init__(
        self,
        work: Workspace,
        share: float,
        *,
        solve: Callable[[], MasterSolution],
        unmet: Callable[[MasterSolution], bool],
    ) -> None:
        self.share, self.solve, self.unmet = share, solve, unmet
        self.blocks = work.columns.blocks
        self.count = len(work.layout)
        self.tolerance = work.settings.feasibility_tolerance
        self.master = work.master if isinstance(work.master, LinearMaster) else None
        if share and self.master is None:
            work.notes.append("lean was given, but only linear masters can leave members out")
        self.barred = np.empty(0, np.int64)

    def reduced(self, solution: MasterSolution) -> MasterSolution:
        """A solution of fewer members that costs little more, or the one given."""
        if not self.share or self.master is None:
            return solution
        most = solution.penalised + self.share * max(1.0, abs(solution.objective))
        largest = np.zeros(self.count)
        np.maximum.at(largest, self.blocks, solution.weights)
        for share in SHARES:
            small = solution.weights < np.minimum(share, largest[self.blocks])
            if not np.any(small & (solution.weights > 0)):
                break  # nothing to leave out, and at smaller shares neither
            self._bar(np.flatnonzero(small))
            tried = self.solve()
            if tried.penalised <= most and not self._lacking(tried):
                return tried
        return self._with_all(solution)

    def checked(self, solution: MasterSolution) -> MasterSolution:
        """The solution, or one of all members if rows found since cannot be met without them."""
        return self._with_all(solution) if self._lacking(solution) else solution

    def _lacking(self, solution: MasterSolution) -> bool:
        used = float(solution.weights[self.barred].sum())
        return len(self.barred) > 0 and (used > self.tolerance or self.unmet(solution))

    def _with_all(self, solution: MasterSolution) -> MasterSolution:
        if not len(self.barred):
            return solution
        self._bar(self.barred[:0])
        return self.solve()

    def _bar(self, members: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        assert self.master is not None
        self.barred = members
        self.master.bar(members)
