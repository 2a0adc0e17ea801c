"""What libraries that store models without code, such as skops, keep of a fitted estimator.

They take types of Python and NumPy and ask of any other whether it is trusted. So the mixture is
stated as its files have it, plain data and named arrays, and the records of training stay behind.
Pickles and copies hold all.
"""

from __future__ import annotations

import copyreg
from dataclasses import dataclass
from typing import Any

from cg4ai.ensemble.saved import Description, describe, restore_ensemble
from cg4ai.errors import InvalidInput, MissingFactory
from cg4ai.estimators.inputs import ReadingEstimator
from cg4ai.estimators.kinds import kinds_of
from cg4ai.members.factories import make_picklable
from cg4ai.runs import files

RECORDS = ("result_", "audit_", "history_", "score_", "stop_reason_")  # of training


@dataclass(eq=False, repr=False, kw_only=True)
class StoredEstimator(ReadingEstimator):
    """How the estimators are pickled, and what skops has of them; not public."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), self._whole_state()  # type: ignore[attr-defined]

    def _whole_state(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if "ensemble_" not in state:  # those who still have to train send functions by cloudpickle
            return state
        several = isinstance(self.members, list | tuple)
        kinds = [make_picklable(kind) for kind in kinds_of(self.members)]
        members = type(self.members)(kinds) if several else kinds[0]
        return {**state, "members": members, "callbacks": None}

    def __getstate__(self) -> dict[str, Any]:
        """Plain data and arrays; `__reduce_ex__` is what pickles and copies go by."""
        state = self._whole_state()
        if "ensemble_" not in state:
            return state
        described = describe(state["ensemble_"])
        plain = {"record": files.to_plain(described.record), "arrays": described.arrays}
        kept = {name: value for name, value in state.items() if name not in RECORDS}
        return {**kept, "ensemble_": plain}

    def __setstate__(self, state: dict[str, Any]) -> None:
        known = state.get("ensemble_")
        if isinstance(known, dict):
            described = Description(known["record"], known["arrays"])
            try:
                state = {**state, "ensemble_": restore_ensemble(described, {})}
            except MissingFactory as error:
                raise InvalidInput(
                    f"members of code of your own are not stored without it ({error}); pickle the "
                    "model, or save model.ensemble_ and load it with factories",
                    code="missing-factory",
                ) from error
        super().__setstate__(state)
