"""The product: members with weights, one deterministic predictor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from cg4ai.arrays import matrix
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.protocols import Members
from cg4ai.records import Array, IntArray
from cg4ai.rows import Layout

if TYPE_CHECKING:
    from cg4ai.audits import Audit
    from cg4ai.requirements import Requirement
    from cg4ai.shield import ShieldedEnsemble
    from cg4ai.strength import Explanation

FORMAT = "cg4ai-ensemble"
VERSION = 2  # 2: may have a shield beside it, which a reader of version 1 would drop


@dataclass(frozen=True, slots=True)
class Part:
    """A stack of members of one kind, with the block and the weight of each member."""

    members: Members
    blocks: IntArray
    weights: Array

    def kept(self) -> Part:
        """The same with blocks and weights of its own that nobody can change."""
        blocks, weights = np.array(self.blocks), np.array(self.weights)
        for array in (blocks, weights):
            array.setflags(write=False)
        return Part(self.members, blocks, weights)


class Ensemble:
    """`f(x) = sum_i weight_i member_i(x)`, the weights of each block summing to one.

    Predictions are computed in float64 from float64 parameters: what audits and certificates
    speak of is what inference does.
    """

    def __init__(
        self,
        parts: tuple[Part, ...],
        layout: Layout,
        *,
        about: Mapping[str, Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if not parts:
            raise InvalidInput("an ensemble needs at least one member")
        self.parts = tuple(part.kept() for part in parts)
        self.layout = layout
        self.about = dict(about or {})
        self.device = torch.empty(0, device=device).device  # "cuda" becomes "cuda:0"
        self._check()
        self._width = max(len(block) for block in layout.blocks)
        places = layout.places(self._width)
        self._places = None if places is None else torch.as_tensor(places, device=self.device)
        self._shares = [self._share(part) for part in self.parts]

    def _check(self) -> None:
        total = np.zeros(len(self.layout))
        for part in self.parts:
            if not len(part.members) == len(part.blocks) == len(part.weights):
                raise InvalidInput(
                    f"a part has {len(part.members)} members, {len(part.blocks)} blocks and "
                    f"{len(part.weights)} weights; the three must be as many"
                )
            if np.any(part.weights < 0):
                raise InvalidInput(f"weights must not be negative, got {part.weights.min()}")
            self._check_sizes(part)
            np.add.at(total, part.blocks, part.weights)
        if not np.all(np.abs(total - 1) <= 1e-6):
            raise InvalidInput(f"the weights of each block must sum to one, got {total.tolist()}")

    def _check_sizes(self, part: Part) -> None:
        if part.members.input_size != self.input_size:
            raise InvalidInput(
                f"all members must take the same inputs, got some with {self.input_size} and some "
                f"with {part.members.input_size} features"
            )
        for number in np.unique(part.blocks):
            if not 0 <= number < len(self.layout):
                raise InvalidInput(
                    f"a member names block {number}, of {len(self.layout)} counted from 0"
                )
            if part.members.output_size < len(self.layout.blocks[number]):
                raise InvalidInput(
                    f"members of block {number} have {part.members.output_size} outputs and must "
                    f"fill {len(self.layout.blocks[number])}"
                )

    @property
    def input_size(self) -> int:
        return self.parts[0].members.input_size

    @property
    def output_size(self) -> int:
        return self.layout.output_size

    @property
    def differentiable(self) -> bool:
        return all(part.members.differentiable for part in self.parts)

    def __len__(self) -> int:
        """How many members have positive weight."""
        return int(sum(np.count_nonzero(part.weights) for part in self.parts))

    def __repr__(self) -> str:
        return (
            f"Ensemble({len(self)} members, {len(self.layout)} block(s), "
            f"{self.input_size} inputs, {self.output_size} outputs)"
        )

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) float64 -> (n, r) float64, with gradients where the members have them.

        Inputs on another device than the members' are moved there, and the outputs back.
        """
        if inputs.device != self.device:
            return self.outputs(inputs.to(self.device)).to(inputs.device)
        shared = zip(self.parts, self._shares, strict=True)
        if len(self.layout) == 1:
            mixed = torch.stack([self._mix(part, share[0], inputs) for part, share in shared]).sum(
                0
            )
            return mixed if self._places is None else mixed.index_select(1, self._places)
        mixed = reduce(add, (self._mix_blocks(part, share, inputs) for part, share in shared))
        values = mixed.transpose(1, 2).flatten(0, 1)  # (blocks * width, n)
        return (values if self._places is None else values.index_select(0, self._places)).T

    def _share(self, part: Part) -> Tensor:
        """The weight of each member in each block, (blocks, members)."""
        share = np.zeros((len(self.layout), len(part.weights)))
        share[part.blocks, np.arange(len(part.weights))] = part.weights
        return torch.as_tensor(share, device=self.device)

    def _mix(self, part: Part, weights: Tensor, inputs: Tensor) -> Tensor:
        mixture: Callable[[Tensor, Tensor], Tensor] | None = getattr(part.members, "mixture", None)
        if mixture is not None:
            return mixture(inputs, weights)[..., : self.output_size]
        values = part.members.outputs(inputs)[..., : self.output_size]
        return torch.einsum("m,mnr->nr", weights, values)

    def _mix_blocks(self, part: Part, share: Tensor, inputs: Tensor) -> Tensor:
        """The part's share in each block: (blocks, n, outputs of the widest block)."""
        mixtures: Callable[..., Tensor] | None = getattr(part.members, "mixtures", None)
        if mixtures is not None:
            own = mixtures(inputs, share)
        else:
            values = part.members.outputs(inputs)
            own = (share @ values.flatten(1)).view(len(share), *values.shape[1:])
        lacking = self._width - own.shape[-1]
        return functional.pad(own, (0, lacking)) if lacking > 0 else own[..., : self._width]

    def predict(self, inputs: Any, *, explain: bool = False) -> Any:
        """NumPy array or DataFrame (n, d) -> array (n, r); torch tensor -> torch tensor.

        With `explain` an `Explanation`: these outputs, and how strongly each is covered.
        """
        x = matrix(inputs, "inputs")
        if x.shape[1] != self.input_size:
            raise InvalidInput(
                f"inputs have {x.shape[1]} features, this ensemble takes {self.input_size}"
            )
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
        from cg4ai.strength import Explanation, recorded_labels, weakest

        with torch.no_grad():
            outputs = self.outputs(torch.as_tensor(x)).numpy()
        labels = recorded_labels(self, x)
        return Explanation(outputs, weakest(labels, len(x)), labels, np.zeros(len(x)))

    def shielded(
        self, anchor: Any, requirement: Requirement | Sequence[Requirement]
    ) -> ShieldedEnsemble:
        """The same mixture, moved just far enough towards the anchor where it breaks a rule.

        `anchor`: outputs (r,) for all inputs, a single member, or an ensemble, known to keep the
        rules on the whole Box or Ball of each requirement. An anchor seen to break one is refused.
        """
        from cg4ai.shield import shield

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
        parts = tuple(Part(p.members.to(device), p.blocks, p.weights) for p in self.parts)
        return Ensemble(parts, self.layout, about=self.about, device=device)

    def audit(self, requirement: Requirement, *, tolerance: float = 1e-6) -> Audit:
        """Recompute a requirement from predictions, on any data; see `Audit`."""
        from cg4ai.audits import audit

        return audit(requirement, self, tolerance=tolerance)

    def as_module(self) -> nn.Module:
        """An `nn.Module` with the same predictions: (n, d) -> (n, r), float64."""
        return _EnsembleModule(self)

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
        """Write `ensemble.json` and `members.*`; load with `cg4ai.load(folder)`."""
        return self.write(Path(folder), shield=False)

    def write(self, target: Path, *, shield: bool) -> Path:
        """The files of the mixture; `shield` says that those of a shield lie beside them."""
        from cg4ai.storage import save_members, write_json

        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot create {target}: {error.strerror}") from error
        save_members(target, "members", [part.members.state() for part in self.parts])
        write_json(
            target / "ensemble.json",
            {
                "format": FORMAT,
                "version": VERSION if shield else 1,
                "about": self.about,
                "layout": [block.tolist() for block in self.layout.blocks],
                "blocks": [part.blocks.tolist() for part in self.parts],
                "weights": [part.weights.tolist() for part in self.parts],
                **({"shield": True} if shield else {}),
            },
        )
        return target


class _EnsembleModule(nn.Module):
    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.ensemble = ensemble

    def forward(self, inputs: Tensor) -> Tensor:
        return self.ensemble.outputs(inputs.to(torch.float64))


def load(
    folder: str | Path, factories: Mapping[str, Callable[[], nn.Module]] | None = None
) -> Ensemble:
    """Read an ensemble that `save` or a run wrote. Nothing from the folder is executed.

    Members of a user's own module class need that class again: `factories={name: factory}`.
    """
    from cg4ai.members import restore
    from cg4ai.storage import load_members, read_json

    source = Path(folder)
    path = source / "ensemble.json"
    if not path.exists():
        raise RunFolderError(f"{source} holds no ensemble: {path.name} is missing")
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise RunFolderError(f"{path} is not an ensemble of this package")
    version = content.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise RunFolderError(
            f"{path} was written by a newer cg4ai (format {version}, this one reads up to "
            f"{VERSION}); upgrade cg4ai"
        )
    members = [restore(state, factories) for state in load_members(source, "members")]
    try:
        parts = tuple(
            Part(stack, np.array(blocks, np.int64), np.array(weights, np.float64))
            for stack, blocks, weights in zip(
                members, content["blocks"], content["weights"], strict=True
            )
        )
        layout = Layout(tuple(np.array(block, np.int64) for block in content["layout"]))
        ensemble = Ensemble(parts, layout, about=content["about"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} is damaged or not of these members: {error}") from error
    if not content.get("shield"):
        return ensemble
    from cg4ai.shield import restore as restore_shield

    return restore_shield(ensemble, source, factories)
