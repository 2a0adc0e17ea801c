"""Members from a certificate's arrays: strict checks, then the stacks that bounds work on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.errors import Rejected
from cg4ai_checker.linearised import BANDS, ConstantPart, NetworkPart, Part, TreePart
from cg4ai_checker.scale import SMALLEST_SCALE, within_scale

CONFIGS = {
    "network": {
        *("input_size", "output_size", "hidden", "activation", "skip", "output", "groups"),
    },
    "tree": {"input_size", "link", "single_precision"},
    "constant": {"input_size"},
}
TREE_NODES = ("feature", "threshold", "left", "right")
WHOLE = ("feature", "left", "right", "missing", "subset", "subsets")


@dataclass(frozen=True)
class PartSource:
    """A stack of members as stored, with the block and weight of each member."""

    kind: str
    config: Any
    arrays: dict[str, NDArray[Any]]
    blocks: NDArray[np.int64]
    weights: Array


def build_part(source: PartSource, input_size: int, region: tuple[Array, Array]) -> Part:
    """The stack that `source` describes, over the box `region`; Rejected if anything is amiss."""
    config, arrays = source.config, source.arrays
    if source.kind not in CONFIGS:
        raise Rejected(f"members of kind {source.kind!r} cannot be checked", code="unsupported")
    if not isinstance(config, dict) or set(config) != CONFIGS[source.kind]:
        raise Rejected(f"{source.kind} members have a config other than their own")
    if type(config["input_size"]) is not int or config["input_size"] != input_size:
        raise Rejected(f"members do not say that they take {input_size} inputs")
    for name, array in arrays.items():
        wanted = np.int64 if name in WHOLE else np.float64
        if array.dtype != wanted or array.ndim == 0:
            raise Rejected(
                f"the array {name!r} of {source.kind} members must be of {np.dtype(wanted)}"
            )
        within_scale(array, f"the array {name} of {source.kind} members")
    if source.kind == "constant":
        _shapes(arrays, {"values": (len(source.weights), None)})
        return ConstantPart(arrays["values"])
    if source.kind == "tree":
        return _trees(config, arrays, len(source.weights))
    return _networks(config, arrays, len(source.weights), region)


def _shapes(arrays: dict[str, NDArray[Any]], shapes: dict[str, tuple[int | None, ...]]) -> None:
    """Rejected unless exactly these arrays are there, with these shapes (None: any length)."""
    if set(arrays) != set(shapes):
        raise Rejected(f"members need the arrays {sorted(shapes)[:8]} and no others")
    for name, shape in shapes.items():
        got = arrays[name].shape
        fits = len(got) == len(shape) and all(
            size > 0 and wanted in (None, size) for wanted, size in zip(shape, got, strict=True)
        )
        if not fits:
            raise Rejected(f"the array {name} has the shape {got}, expected {shape}", code="shape")


def _sizes(value: Any, what: str) -> tuple[int, ...]:
    whole = isinstance(value, list) and all(type(size) is int and size > 0 for size in value)
    if not whole:
        raise Rejected(f"{what} must be a list of whole numbers above 0")
    return tuple(value)


def _networks(
    config: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    count: int,
    region: tuple[Array, Array],
) -> NetworkPart:
    hidden, groups = _sizes(config["hidden"], "hidden"), _sizes(config["groups"], "groups")
    (outputs,) = _sizes([config["output_size"]], "output_size")
    if config["activation"] not in tuple(BANDS):
        raise Rejected(
            f"networks have an unknown activation; known are {list(BANDS)}", code="unknown-name"
        )
    if not isinstance(config["skip"], bool) or (config["skip"] and not hidden):
        raise Rejected("skip must be true or false, and false for networks without hidden layers")
    kinds = {"linear": (), "softmax": (outputs,), "grouped": groups}
    if config["output"] not in tuple(kinds) or (config["output"] == "grouped") != bool(groups):
        raise Rejected(
            f"networks have an unknown output, or groups that do not go with {kinds}",
            code="unknown-name",
        )
    if groups and sum(groups) != outputs:
        raise Rejected(f"groups sum to {sum(groups)}, not to {outputs} outputs")
    shapes: dict[str, tuple[int | None, ...]] = {}
    inputs = len(region[0])
    for layer, (inner, size) in enumerate(pairwise((inputs, *hidden, outputs))):
        shapes[f"weight_{layer}"] = (count, size, inner)
        shapes[f"bias_{layer}"] = (count, size)
    if config["skip"]:
        shapes["skip"] = (count, outputs, inputs)
    for name in ("normalise_shift", "normalise_scale"):
        if name in arrays:
            shapes[name] = (inputs,)
    _shapes(arrays, shapes)
    scale = arrays.get("normalise_scale", np.ones(inputs))
    within_scale(scale, "the scale of inputs", least=SMALLEST_SCALE)
    layers = range(len(hidden) + 1)
    return NetworkPart.build(
        [arrays[f"weight_{layer}"] for layer in layers],
        [arrays[f"bias_{layer}"] for layer in layers],
        skip=arrays.get("skip"),
        shift=arrays.get("normalise_shift", np.zeros(inputs)),
        scale=scale,
        activation=config["activation"],
        groups=kinds[config["output"]],
        region=region,
    )


def _trees(config: dict[str, Any], arrays: dict[str, NDArray[Any]], count: int) -> TreePart:
    if config["link"] not in ("identity", "softmax"):
        raise Rejected(
            "trees have an unknown link; known are identity and softmax", code="unknown-name"
        )
    if not isinstance(config["single_precision"], bool):
        raise Rejected("single_precision must be true or false")
    value = arrays.get("value")
    if value is None or value.ndim != 4:
        raise Rejected("trees need values (count, trees, nodes, outputs)")
    if "subset" in arrays or "subsets" in arrays:
        raise Rejected(
            "trees that ask for categories cannot be checked: only thresholds can",
            code="unsupported",
        )
    _, trees, nodes, outputs = value.shape
    nodewise: dict[str, tuple[int | None, ...]] = dict.fromkeys(TREE_NODES, (count, trees, nodes))
    if "missing" in arrays:  # where NaN goes: no input of a region is NaN
        nodewise["missing"] = (count, trees, nodes)
    _shapes(
        arrays,
        {
            **nodewise,
            "value": (count, trees, nodes, outputs),
            "initial": (count, outputs),
            "factor": (count,),
        },
    )
    node, left, right = np.arange(nodes), arrays["left"], arrays["right"]
    leaf, later = (left == node) & (right == node), (left > node) & (right > node)
    if not ((leaf | later) & (left < nodes) & (right < nodes)).all():
        raise Rejected("a tree's node points to an earlier one or beyond the last")
    if arrays["feature"].min() < 0 or arrays["feature"].max() >= config["input_size"]:
        raise Rejected("a tree compares an input that does not exist")
    return TreePart(
        arrays["feature"],
        arrays["threshold"],
        left,
        right,
        value,
        arrays["initial"],
        arrays["factor"],
        groups=(outputs,) if config["link"] == "softmax" else (),
        single=config["single_precision"],
    )
