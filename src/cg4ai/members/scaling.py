"""Units of networks: of inputs before the first layer, of linear outputs after the last."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.protocols import Parameters
from cg4ai.records import Array

UNITS = ("shift", "scale", "output_shift", "output_scale")


def checked_units(values: object, name: str, size: int) -> Array:
    """One finite number for each input or output, read-only; scales are positive."""
    array = np.array(values, dtype=np.float64)
    if array.shape != (size,) or not np.all(np.isfinite(array)):
        raise InvalidInput(f"{name} must be ({size},) finite numbers, got {array.shape}")
    if name.endswith("scale") and np.any(array <= 0):
        raise InvalidInput(f"{name} must be positive; use 1 for what does not vary")
    array.setflags(write=False)
    return array


class Scaling:
    """The units of one architecture: those of `UNITS` that are given, checked."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        # As tensors, by device and dtype: training must not copy from the host.
        self._tensors: dict[tuple[torch.device, torch.dtype], dict[str, Tensor]] = {}

    @property
    def of_outputs(self) -> bool:
        """Whether outputs have units of their own."""
        return "output_shift" in self.arrays or "output_scale" in self.arrays

    def key(self) -> tuple[bytes | None, ...]:
        """What makes two equal."""
        return tuple(self.arrays[name].tobytes() if name in self.arrays else None for name in UNITS)

    def inputs(self, inputs: Tensor) -> Tensor:
        """`(inputs - shift) / scale` in the dtype and on the device of the inputs."""
        known = self.like(inputs)
        shifted = inputs - known["shift"] if "shift" in known else inputs
        return shifted / known["scale"] if "scale" in known else shifted

    def outputs(self, outputs: Tensor) -> Tensor:
        """`output_shift + output_scale * outputs`, the last axis one entry per output."""
        known = self.like(outputs)
        scaled = outputs * known["output_scale"] if "output_scale" in known else outputs
        return scaled + known["output_shift"] if "output_shift" in known else scaled

    def folded(self, parameters: Parameters, *, depth: int) -> Parameters:
        """Parameters whose last layer gives outputs in their units, float64."""
        scale, shift = self._output_units(parameters[f"bias_{depth}"])
        return _rescaled(parameters, scale, shift, depth=depth)

    def unfolded(self, parameters: Parameters, *, depth: int) -> Parameters:
        """The reverse of `folded`."""
        scale, shift = self._output_units(parameters[f"bias_{depth}"])
        return _rescaled(parameters, 1.0 / scale, -shift / scale, depth=depth)

    def _output_units(self, bias: Tensor) -> tuple[Tensor, Tensor]:
        known = self.like(torch.empty(0, dtype=torch.float64, device=bias.device))
        ones = torch.ones(bias.shape[-1], dtype=torch.float64, device=bias.device)
        return known.get("output_scale", ones), known.get("output_shift", 0.0 * ones)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Scaling:
        """The same units, given as tensors."""
        made = Scaling(self.arrays)
        for tensor in tensors.values():
            made._tensors = {(tensor.device, tensor.dtype): dict(tensors)}
        return made

    def like(self, tensor: Tensor) -> dict[str, Tensor]:
        """The units in the dtype and on the device of a tensor."""
        key = (tensor.device, tensor.dtype)
        if key not in self._tensors:
            # Tensors made under inference mode could not be used in training later.
            with torch.inference_mode(False):
                self._tensors[key] = {
                    name: torch.tensor(array).to(*key) for name, array in self.arrays.items()
                }
        return self._tensors[key]


def _rescaled(parameters: Parameters, scale: Tensor, shift: Tensor, *, depth: int) -> Parameters:
    """The last layer's outputs z as `scale * z + shift`, float64 copies of the rest."""
    result = {name: tensor.detach().double() for name, tensor in parameters.items()}
    for name in (f"weight_{depth}", *(["skip"] if "skip" in parameters else [])):
        result[name] = result[name] * scale.unsqueeze(-1)
    result[f"bias_{depth}"] = result[f"bias_{depth}"] * scale + shift
    return result
