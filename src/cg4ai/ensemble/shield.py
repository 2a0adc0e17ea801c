"""`ShieldedEnsemble`: a mixture whose predictions are moved towards an anchor where rules ask it.

At inference `(1 - theta) f(x) + theta anchor(x)` with one scalar theta per input, 0 where f keeps
every rule and otherwise the smallest that restores the linear ones, in closed form;
docs/mathematics.md has the proof. `Ensemble.apply_shield` makes one, `save` and `cg4ai.load` keep
it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from cg4ai.anchors.affine_maps import AffineMap
from cg4ai.anchors.search import check_anchor_outputs, find_worst_case, is_proven
from cg4ai.data import arrays
from cg4ai.ensemble import claims
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.output_sets import plan_correction
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.affine_maps import find_affine_map
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part, SingleMixture
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.nn.blending import Blend
from cg4ai.records import Array, select_prefixed
from cg4ai.rules import Requirement
from cg4ai.rules.guards import Guard, guard_of
from cg4ai.rules.regions import Region
from cg4ai.rules.violations import predictions, sample_candidates
from cg4ai.runs import files

VERTICES = 512  # looked at when an anchor cannot be checked exactly


@dataclass(frozen=True, slots=True)
class AnchorCheck:
    """What is known of the anchor for one requirement, found when the shield was made.

    exact: the anchor keeps all rules at every input of the region, by a closed form. Otherwise it
    was looked at in `inputs` places only. `room` is the least slack of any rule that was found.
    """

    requirement: str
    exact: bool
    room: float
    inputs: int

    def __str__(self) -> str:
        if self.exact:
            place = "at every input of its region (closed form)"
        else:
            place = f"at {self.inputs} inputs of its region; elsewhere this is not established"
        return f"the anchor keeps {self.requirement} {place}, with room {self.room:.3g}"


class ShieldedEnsemble(Ensemble):
    """`f + theta (anchor - f)`: an ensemble that keeps the rules of its guards in their regions.

    `parts`, `weights` and `layout` are those of the mixture f, which `unshielded` gives back.
    `checks` say, requirement by requirement, how it is known that the anchor keeps the rules. The
    shield acts only inside the regions; what `predict(..., explain=True)` labels "shielded" was
    recomputed from the blended output.
    """

    def __init__(self, ensemble: Ensemble, anchor: Ensemble, guards: tuple[Guard, ...]) -> None:
        if isinstance(anchor, ShieldedEnsemble):  # what is proven of its members is not of it
            raise InvalidInput(
                f"an anchor must not have a shield of its own, got {anchor!r:.80}; give one that "
                "keeps the rules by itself, such as constant outputs",
                code="anchor",
            )
        mixture = ensemble.mixture
        super().__init__(mixture.parts, mixture.layout, about=mixture.about, device=mixture.device)
        self._anchor = anchor.to(self.device)
        together = (tuple(range(self.output_size)),)  # one theta for the whole output
        self._blend = Blend(guards, self.output_size, together)
        self.checks = tuple(_checked(one, self.anchor) for one in guards)
        for one in guards:  # tensors are made here, not while a graph is traced
            x = torch.as_tensor(one.region.middle, device=self.device)[None]
            with torch.no_grad():
                y = self.anchor.outputs(x)
                one.theta(x, one.rules.slack(x, y), y, y)

    def __repr__(self) -> str:
        names = ", ".join(one.name for one in self.guards)
        return f"Shielded{super().__repr__()[:-1]}, keeps {names})"

    @property
    def anchor(self) -> Ensemble:
        """What outputs are moved towards, known to keep the rules on their regions."""
        return self._anchor

    @property
    def guards(self) -> tuple[Guard, ...]:
        return self._blend.guards

    @property
    def mixture(self) -> Ensemble:
        return Ensemble(self.parts, self.layout, about=self.about, device=self.device)

    @property
    def shield_digest(self) -> str:
        guards = [str(one.key) for one in self.guards]
        content = [claims.compute_mixture_digest(self.anchor), guards]
        return hashlib.sha256(files.json_line(content)).hexdigest()

    @property
    def unshielded(self) -> Ensemble:
        return self.mixture.unshielded

    @property
    def differentiable(self) -> bool:
        return super().differentiable and self.anchor.differentiable

    def _known_regions(self) -> dict[str, list[Region]]:
        known = super()._known_regions()
        for one in self.guards:
            known.setdefault(one.name, []).append(one.region)
        return known

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) float64 -> (n, r) float64, with gradients where members and anchor have them."""
        if inputs.device != self.device:
            return self.outputs(inputs.to(self.device)).to(inputs.device)
        mixed = super().outputs(inputs)
        return self._put_back(self._blend.repair_outputs(inputs, mixed, self.anchor.outputs))

    def single(self) -> SingleMixture | None:
        mixed, anchor, move = super().single(), self.anchor.single(), self._blend.single()
        if mixed is None or anchor is None or move is None:
            return None
        source = self._known_set()
        correct = None if source is None else plan_correction(source)

        def compute_outputs(x: Array) -> tuple[Array, float]:
            moved, theta = move(x, mixed(x)[0][None], lambda: anchor(x)[0][None])
            outputs = moved[0] if correct is None else correct(moved[0])
            return outputs, 0.0 if theta is None else float(theta[0])

        return compute_outputs

    def theta(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n,): how far each output is moved towards the anchor."""
        if inputs.device != self.device:
            return self.theta(inputs.to(self.device)).to(inputs.device)
        return self._moved(inputs)[1]

    def traceable(self, inputs: Tensor) -> Tensor:
        return self._put_back(self._moved(inputs)[0])

    def _moved(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self._blend.blend_outputs(
            inputs, super().outputs(inputs), self.anchor.outputs(inputs)
        )

    def tensors(self) -> dict[str, Tensor]:
        anchor = {f"anchor.{name}": tensor for name, tensor in self.anchor.tensors().items()}
        return super().tensors() | anchor | self._blend.tensors(self.device)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        made = super().with_tensors(tensors)
        made._anchor = self.anchor.with_tensors(select_prefixed(tensors, "anchor."))
        made._blend = self._blend.with_tensors(tensors)
        return made

    def examine(self) -> None:
        super().examine()
        self.anchor.examine()

    def _recorded(self, x: Array, theta: Array) -> claims.Ranks:
        # claims about the mixture hold for what is predicted only where the shield left it alone
        known = super()._recorded(x, theta)
        return {subject: np.where(theta == 0, own, 0) for subject, own in known.items()}

    def to(self, device: torch.device | str) -> ShieldedEnsemble:
        """The same predictor on another device."""
        target = torch.empty(0, device=device).device
        if target == self.device:
            return self
        return ShieldedEnsemble(self.mixture.to(target), self.anchor, self.guards)

    def fuse(self) -> nn.Module:
        raise InvalidInput(
            "a shielded ensemble cannot be fused into one network: the blend depends on the "
            "input; use as_module() instead, or unshielded.fuse() to give up the shield",
            code="unsupported",
        )


def build_shield(
    ensemble: Ensemble, anchor: Any, requirements: Requirement | Sequence[Requirement]
) -> ShieldedEnsemble:
    """See `Ensemble.apply_shield`."""
    listed = list(requirements) if isinstance(requirements, Sequence) else [requirements]
    if not listed:
        raise InvalidInput("a shield needs at least one requirement to keep", code="empty")
    names = [requirement.name for requirement in listed]
    if len(set(names)) < len(names):
        raise InvalidInput(
            f"requirements under a shield need names of their own, got {names}", code="duplicate"
        )
    for requirement in listed:
        requirement.check(ensemble.input_size, ensemble.output_size)
    guards = tuple(guard_of(one, ensemble.output_size) for one in listed)
    return ShieldedEnsemble(ensemble, _as_ensemble(anchor, ensemble), guards)


def _as_ensemble(anchor: Any, ensemble: Ensemble) -> Ensemble:
    """The anchor as an ensemble of the same sizes, whichever way it was given."""
    if isinstance(anchor, Ensemble):
        given = anchor
    else:
        if callable(getattr(anchor, "outputs", None)):
            members = anchor
            if len(members) != 1:
                raise InvalidInput(
                    f"an anchor is one member, got a stack of {len(members)}; take one with "
                    "take(...), or give an Ensemble with weights",
                    code="anchor",
                )
        else:
            values = arrays.as_vector(anchor, "the anchor", ensemble.output_size)
            members = ConstantMembers(values[None], ensemble.input_size)
        layout = Layout.single(members.output_size)
        given = Ensemble(
            (Part(members, np.zeros(1, np.int64), np.ones(1)),), layout, device=ensemble.device
        )
    sizes = (given.input_size, given.output_size)
    if sizes != (ensemble.input_size, ensemble.output_size):
        raise InvalidInput(
            f"the anchor maps {sizes[0]} inputs to {sizes[1]} outputs, the ensemble "
            f"{ensemble.input_size} to {ensemble.output_size}; the two must agree",
            code="shape",
        )
    return given


def find_anchor_checks(ensemble: Ensemble) -> dict[tuple[Any, ...], AnchorCheck]:
    """What is known of the anchors, for every rule that is kept, by the guard's key.

    Of several anchors, those of members shielded otherwise, the one with least room counts.
    """
    if isinstance(ensemble, ShieldedEnsemble):
        pairs = zip(ensemble.guards, ensemble.checks, strict=True)
        return {guard.key: check for guard, check in pairs}
    stacks = [part.members for part in ensemble.used]
    shields = {one.shield.digest: one.shield for one in stacks if isinstance(one, ShieldedMembers)}
    found: dict[tuple[Any, ...], AnchorCheck] = {}
    for guard in ensemble.guards:
        checks = [_checked(guard, _as_ensemble(one.anchor, ensemble)) for one in shields.values()]
        found[guard.key] = min(checks, key=lambda check: (check.exact, check.room))
    return found


def find_shield_check(ensemble: Ensemble, requirement: Requirement) -> AnchorCheck | None:
    """How it is known that a shield keeps the requirement everywhere; None if it is not."""
    if not isinstance(requirement.region, Region) or not ensemble.guards:
        return None
    checks, guard = find_anchor_checks(ensemble), guard_of(requirement, ensemble.output_size)
    # a guard that acts everywhere keeps the rule in its region, too
    check = checks.get(guard.key) or checks.get(replace(guard, everywhere=True).key)
    return check if check is not None and check.exact else None


def _checked(one: Guard, anchor: Ensemble) -> AnchorCheck:
    """Look for a rule that the anchor breaks: exactly where that can be done, else at samples."""
    constant = all(isinstance(part.members, ConstantMembers) for part in anchor.used)
    if constant:
        value = predictions(anchor, np.zeros((1, anchor.input_size)))[0].numpy()
        known: AffineMap | None = AffineMap.constant(value, anchor.input_size)
    else:
        known = find_affine_map(anchor.used[0].members) if len(anchor) == 1 else None
    worst = None if known is None else find_worst_case(one, known)
    points = sample_candidates(one.region, VERTICES, torch.Generator().manual_seed(0))
    if known is not None and worst is not None:
        if is_proven(one, worst, known):
            room = max(0.0, float(worst[0].min()))
            return AnchorCheck(one.name, exact=True, room=room, inputs=len(worst[1]))
        points = np.concatenate([worst[1], points])
    with torch.no_grad():
        x = torch.as_tensor(points, device=anchor.device)
        outputs = anchor.outputs(x)
        found = one.rules.slack(x, outputs).cpu().numpy()
    check_anchor_outputs(one, points, outputs.cpu().numpy())
    room = max(0.0, float(found.min()))
    return AnchorCheck(one.name, exact=False, room=room, inputs=len(points))
