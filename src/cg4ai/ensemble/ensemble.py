"""The product: members with weights, one deterministic predictor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cg4ai.arrays import matrix
from cg4ai.ensemble.regions import Outside
from cg4ai.errors import InvalidInput
from cg4ai.members.mixture import Layout, Mixture, Part
from cg4ai.records import Array

if TYPE_CHECKING:
    from cg4ai.ensemble.audit import Audit
    from cg4ai.ensemble.claims import Explanation
    from cg4ai.ensemble.shield import ShieldedEnsemble
    from cg4ai.rules import Requirement


class Ensemble(Mixture):
    """A mixture as a product: predictions for any kind of input, claims, files."""

    def __init__(
        self,
        parts: tuple[Part, ...],
        layout: Layout,
        *,
        about: Mapping[str, Any] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(parts, layout, device=device)
        self.about = dict(about or {})
        self._outside = Outside(self)

    def predict(
        self,
        inputs: Any,
        *,
        explain: bool = False,
        outside: Literal["warn", "refuse", "ignore"] = "warn",
    ) -> Any:
        """NumPy array or DataFrame (n, d) -> array (n, r); torch tensor -> torch tensor.

        With `explain` an `Explanation`: these outputs, and how strongly each is covered. Inputs
        `outside` the region in which the rules shall hold are marked there; without `explain` they
        are warned of, once (`cg4ai.errors.OutsideRegion`), or ignored; "refuse" refuses them.
        """
        x = matrix(inputs, "inputs")
        if x.shape[1] != self.input_size:
            raise InvalidInput(
                f"inputs have {x.shape[1]} features, this ensemble takes {self.input_size}"
            )
        # an explanation marks what lies outside: who reads it needs no warning
        self._outside.look(x, "ignore" if explain and outside == "warn" else outside)
        if explain:
            explained = self.explain(x)
            if isinstance(inputs, Tensor):
                outputs = torch.as_tensor(explained.outputs, device=inputs.device)
                return replace(explained, outputs=outputs)
            return explained
        with torch.no_grad():
            result = self.outputs(torch.as_tensor(x))
        return result.to(inputs.device) if isinstance(inputs, Tensor) else result.numpy()

    def explain(self, x: Array) -> Explanation:
        """Predictions for checked inputs (n, d), each with what is recorded about it."""
        from cg4ai.ensemble.claims import explanation, recorded_ranks

        with torch.no_grad():
            outputs = self.outputs(torch.as_tensor(x)).numpy()
        ranks = recorded_ranks(self, x)
        return explanation(self, x, outputs, ranks=ranks, theta=np.zeros(len(x)))

    def outside(self, x: Array) -> NDArray[np.bool_]:
        """(n, d) -> (n,): inputs outside the region in which the rules shall hold."""
        return self._outside.mask(x)

    def shielded(
        self, anchor: Any, requirement: Requirement | Sequence[Requirement]
    ) -> ShieldedEnsemble:
        """The same mixture, moved just far enough towards the anchor where it breaks a rule.

        `anchor`: outputs (r,) for all inputs, a single member, or an ensemble, known to keep the
        rules on the whole Box or Ball of each requirement. An anchor seen to break one is refused.
        """
        from cg4ai.ensemble.shield import shield

        return shield(self, anchor, requirement)

    @property
    def unshielded(self) -> Ensemble:
        """The mixture itself."""
        return self

    def to(self, device: torch.device | str) -> Ensemble:
        """The same ensemble with its members on another device."""
        device = torch.empty(0, device=device).device
        if device == self.device:
            return self
        return Ensemble(self.parts, self.layout, about=self.about, device=device)

    def audit(self, requirement: Requirement, *, tolerance: float = 1e-6) -> Audit:
        """Recompute a requirement from predictions, on any data; see `Audit`."""
        from cg4ai.ensemble.audit import audit

        return audit(requirement, self, tolerance=tolerance)

    def as_module(self) -> nn.Module:
        """An `nn.Module` with the same predictions, (n, d) -> (n, r) float64, for use elsewhere.

        It moves, saves its state and exports like any other; see `cg4ai.ensemble.export`.
        """
        from cg4ai.ensemble.export import EnsembleModule

        return EnsembleModule(self)

    def traceable(self, inputs: Tensor) -> Tensor:
        """`outputs` without branches that depend on the data."""
        return self.outputs(inputs)

    def fuse(self) -> nn.Module:
        """One network equal to the mixture: see `cg4ai.members.fusion`."""
        from cg4ai.members.fusion import fuse
        from cg4ai.members.networks import NetworkMembers

        if len(self.parts) != 1 or len(self.layout) != 1:
            raise InvalidInput(
                "only a mixture of networks of one architecture in one block can be fused, got "
                f"{len(self.parts)} kinds of members and {len(self.layout)} blocks; "
                "use as_module() instead"
            )
        part = self.parts[0]
        if not isinstance(part.members, NetworkMembers):
            raise InvalidInput(
                f"only networks can be fused, got {type(part.members).__name__}; "
                "use as_module() instead"
            )
        return fuse(part.members, part.weights)

    def save(self, folder: str | Path) -> Path:
        """Write `ensemble.json` and `members.safetensors`; load with `cg4ai.load(folder)`."""
        from cg4ai.ensemble.saved import save

        return save(self, folder)
