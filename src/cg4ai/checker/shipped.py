"""Is a certificate about the mixture that is shipped? Compare it with an ensemble's folder."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.checker.claim import NAMES, Claim
from cg4ai.checker.errors import Rejected
from cg4ai.checker.parts import PartSource
from cg4ai.errors import RunFolderError
from cg4ai.runs import files

SHARED = ("normalise_shift", "normalise_scale")  # one for all members of a stack


def compare(claim: Claim, folder: str | Path) -> list[str]:
    """What was found equal, in words; Rejected at the first difference."""
    path = Path(folder) / "ensemble.json"
    content = files.read_json(path)
    try:
        layout, blocks, weights = content["layout"], content["blocks"], content["weights"]
        arrays = files.read_arrays(Path(folder) / "members.safetensors", str(content["arrays"]))
        states = files.member_states(content["members"], arrays)
        shipped = [
            PartSource(
                state.kind,
                dict(state.config),
                dict(state.arrays),
                blocks=np.array(own, np.int64),
                weights=np.array(weight, np.float64),
            )
            for state, own, weight in zip(states, blocks, weights, strict=True)
        ]
        used = [_used(part) for part in shipped]
        about = dict(content["about"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RunFolderError(f"{path} is damaged or not of these members: {error}") from error
    if layout != [block.tolist() for block in claim.blocks]:
        raise Rejected(f"the mixture in {folder} has other blocks than the certificate's")
    _same_parts([part for part in used if len(part.weights)], claim, folder)
    _same_names(claim, about, folder)
    said = [f"The mixture is the one stored in {folder}: members, weights and layout are equal."]
    idle = sum(len(part.weights) for part in shipped) - sum(len(part.weights) for part in used)
    if idle:
        said.append(f"That folder also holds {idle} members of weight 0, which predict nothing.")
    if content.get("shield"):
        said.append("That folder also holds a shield; the certificate is about the bare mixture.")
    if about.get("application") == "routing":
        _same_network(claim, about, folder)
        said.append("The rules are the capacities of the network stored there, over its demands.")
    else:
        said.append(
            "Rules and region were not compared, that folder does not state them: are those above "
            "the ones you mean?"
        )
    return said


def _used(part: PartSource) -> PartSource:
    """A stored stack without the members whose weight is zero, which inference leaves out."""
    if part.weights.ndim != 1 or not (np.isfinite(part.weights) & (part.weights >= 0)).all():
        raise ValueError("weights must be finite and at least 0")
    chosen = np.flatnonzero(part.weights)
    arrays = {
        name: array if name in SHARED else array[chosen] for name, array in part.arrays.items()
    }
    return replace(part, arrays=arrays, blocks=part.blocks[chosen], weights=part.weights[chosen])


def _same_parts(used: list[PartSource], claim: Claim, folder: str | Path) -> None:
    if len(used) != len(claim.sources):
        raise Rejected(f"the mixture in {folder} has other members than the certificate's")
    for number, (own, stated) in enumerate(zip(used, claim.sources, strict=True)):
        _same(own, stated, f"part {number} of the mixture in {folder}")


def _same_names(claim: Claim, about: dict[str, Any], folder: str | Path) -> None:
    """Which input and output is which: other names would make it a claim about other things."""
    stored = {name: about[name] for name in NAMES if name in about}
    for name in NAMES:
        if stored.get(name) != claim.about.get(name):
            raise Rejected(f"the mixture in {folder} has other {name} than the certificate's")


def _same(own: PartSource, stated: PartSource, what: str) -> None:
    if (own.kind, own.config) != (stated.kind, stated.config):
        raise Rejected(f"{what} is of another kind or shape than the certificate's")
    for name, one, other in (
        ("blocks", own.blocks, stated.blocks),
        ("weights", own.weights, stated.weights),
    ):
        if not np.array_equal(one, other):
            raise Rejected(f"{what} has other {name} than the certificate's")
    if set(own.arrays) != set(stated.arrays):
        raise Rejected(f"{what} has other arrays than the certificate's")
    for name, array in own.arrays.items():
        if not np.array_equal(array, stated.arrays[name]):
            raise Rejected(f"{what} differs from the certificate's in {name}")


def _same_network(claim: Claim, about: dict[str, Any], folder: str | Path) -> None:
    """A routing run says what its network is: are the rules its capacities, over its demands?"""
    try:
        position = {tuple(arc): number for number, arc in enumerate(about["arcs"])}
        slopes = {
            (position[arc], path, about["path_demand"][path]): 1.0
            / about["capacity"][position[arc]]
            for path, nodes in enumerate(about["paths"])
            for arc in pairwise(nodes)
        }
        upper = np.array(about["demand_max"], np.float64)
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise RunFolderError(
            f"the ensemble in {folder} does not say what its network is: {error}"
        ) from error
    places = zip(
        claim.slope_rule.tolist(),
        claim.slope_output.tolist(),
        claim.slope_input.tolist(),
        strict=True,
    )
    same = (
        dict(zip(places, claim.slope_value.tolist(), strict=True)) == slopes
        and len(claim.limit) == len(position)
        and claim.output_size == len(about["paths"])
        and not claim.constant.any()
        and (claim.limit <= 1).all()
        and claim.region.centre is None
        and not claim.region.lower.any()
        and np.array_equal(claim.region.upper, upper)
    )
    if not same:
        raise Rejected(f"the rules or the region are not the network's that {folder} describes")
