"""Is a certificate about the mixture that is shipped? Compare it with an ensemble's folder."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.checker.claim import Claim
from cg4ai.checker.errors import Rejected
from cg4ai.checker.parts import PartSource
from cg4ai.errors import RunFolderError
from cg4ai.records import MemberState
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
            _used(state, np.array(own, np.int64), np.array(weight, np.float64))
            for state, own, weight in zip(states, blocks, weights, strict=True)
        ]
        about = dict(content["about"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RunFolderError(f"{path} is damaged or not of these members: {error}") from error
    if layout != [block.tolist() for block in claim.blocks]:
        raise Rejected(f"the mixture in {folder} has other blocks than the certificate's")
    used = [part for part in shipped if len(part.weights)]
    if len(used) != len(claim.sources):
        raise Rejected(f"the mixture in {folder} has other members than the certificate's")
    for number, (own, stated) in enumerate(zip(used, claim.sources, strict=True)):
        _same(own, stated, f"part {number} of the mixture in {folder}")
    said = [f"The mixture is the one stored in {folder}: members, weights and layout are equal."]
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


def _used(
    state: MemberState, blocks: NDArray[np.int64], weights: NDArray[np.float64]
) -> PartSource:
    """A stored stack without the members whose weight is zero."""
    positive = np.flatnonzero(weights > 0)
    arrays = {
        name: array if name in SHARED else array[positive] for name, array in state.arrays.items()
    }
    return PartSource(
        state.kind, dict(state.config), arrays, blocks=blocks[positive], weights=weights[positive]
    )


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
        slope = np.zeros((len(position), len(about["paths"]), len(about["demand_max"])))
        for path, nodes in enumerate(about["paths"]):
            for arc in pairwise(nodes):
                number = position[arc]
                demand = about["path_demand"][path]
                slope[number, path, demand] = 1.0 / about["capacity"][number]
        upper = np.array(about["demand_max"], np.float64)
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise RunFolderError(
            f"the ensemble in {folder} does not say what its network is: {error}"
        ) from error
    stated = np.zeros((len(claim.limit), claim.output_size, claim.input_size))
    np.add.at(stated, (claim.slope_rule, claim.slope_output, claim.slope_input), claim.slope_value)
    same = (
        np.array_equal(stated, slope)
        and not claim.constant.any()
        and (claim.limit <= 1).all()
        and claim.region.centre is None
        and not claim.region.lower.any()
        and np.array_equal(claim.region.upper, upper)
    )
    if not same:
        raise Rejected(f"the rules or the region are not the network's that {folder} describes")
