"""An ensemble as a torch module: its numbers are the module's own, its outputs the ensemble's.

The module moves with `.to`, saves its state and can be exported by `torch.export`. It evaluates
by the code that `predict` uses, on tensors of its own, so both give the same predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor, nn

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput


class EnsembleModule(nn.Module):
    """(n, d) -> (n, r), float64.

    Numbers of members are parameters, which do not ask for gradients: what is claimed about the
    ensemble holds for these numbers alone. Integers, weights and what a shield needs are buffers.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        for name, tensor in ensemble.tensors().items():
            self._store(name, tensor.detach().clone())
        self._ensemble, self._seen = ensemble, self.tensors()
        self._refresh()
        self.register_load_state_dict_post_hook(_loaded)  # type: ignore[no-untyped-call]

    def _store(self, name: str, tensor: Tensor) -> None:
        *path, last = name.split(".")
        place: nn.Module = self
        for step in path:
            if step not in place._modules:
                place.add_module(step, nn.Module())
            place = place.get_submodule(step)
        if tensor.is_floating_point() and "members" in path:
            place.register_parameter(last, nn.Parameter(tensor, requires_grad=False))
        else:
            place.register_buffer(last, tensor)

    def tensors(self) -> dict[str, Tensor]:
        """All parameters and buffers by the names that `Ensemble.tensors` gives them."""
        return dict(chain(self.named_parameters(), self.named_buffers()))

    def _refresh(self) -> None:
        """Take over numbers that were moved."""
        tensors = self.tensors()
        if any(t.is_floating_point() and t.dtype != torch.float64 for t in tensors.values()):
            raise InvalidInput(
                "the module of an ensemble computes in float64, which its guarantees are about; "
                "keep it so, or lower the precision of ensemble.fuse()"
            )
        self._ensemble, self._seen = self._ensemble.with_tensors(tensors), tensors

    def examine(self) -> None:
        """Take over a state that was loaded."""
        self._refresh()
        self._ensemble.examine()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> EnsembleModule:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._refresh()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs of any floating dtype on the device of the module."""
        tensors, ensemble = self.tensors(), self._ensemble
        # while the module is traced or called functionally, others stand for its tensors
        if any(tensor is not self._seen.get(name) for name, tensor in tensors.items()):
            ensemble = ensemble.with_tensors(tensors)
        return ensemble.traceable(inputs.to(torch.float64))


def _loaded(module: EnsembleModule, _: object) -> None:
    module.examine()
