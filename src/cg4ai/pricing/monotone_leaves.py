"""Trees made monotone after they are grown: leaves on the wrong side of each other meet halfway.

Libraries that fit quantiles set leaf values anew once a tree is grown, which undoes their own
monotone constraints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array, IntArray
from cg4ai.rules.shapes import Monotone, Shape


def only_monotone(shapes: Sequence[Shape]) -> tuple[Monotone, ...]:
    """The shapes, if leaves can be made to keep them."""
    for shape in shapes:
        if not isinstance(shape, Monotone) or shape.logits:
            raise InvalidInput(
                f"{shape.name} cannot be built into boosted quantiles, which are sums of steps: "
                "use networks"
            )
    return tuple(one for one in shapes if isinstance(one, Monotone))


def made_monotone(members: TreeMembers, directions: IntArray) -> TreeMembers:
    """The same trees, of one output, with leaves clipped so that each moves as `directions` (d,).

    At a node that splits on such a feature both sides are clipped at the middle between the largest
    leaf of the lower side and the smallest of the upper, where these are in the wrong order. That
    leaves all values within the range they had, so that no other node is undone.
    """
    arrays = {name: array.clone() for name, array in members.tensors().items()}
    value = arrays["value"].numpy()
    feature, left, right = (arrays[name].numpy() for name in ("feature", "left", "right"))
    split = left != np.arange(left.shape[2])
    asked = split & (directions[feature] != 0)
    if members.subset is not None and (asked & (members.subset.numpy() >= 0)).any():
        raise InvalidInput("a feature of categories cannot be monotone: leave it out of Monotone")
    for member, tree, node in np.argwhere(asked):
        sides = [
            _leaves(left[member, tree], right[member, tree], int(start))
            for start in (left[member, tree, node], right[member, tree, node])
        ]
        lower, upper = sides[:: int(directions[feature[member, tree, node]])]
        _part(value[member, tree, :, 0], lower, upper)
    return members._rebuild(arrays)


def _part(values: Array, lower: IntArray, upper: IntArray) -> None:
    most, least = values[lower].max(), values[upper].min()
    if most > least:
        middle = (most + least) / 2
        values[lower] = np.minimum(values[lower], middle)
        values[upper] = np.maximum(values[upper], middle)


def _leaves(left: IntArray, right: IntArray, start: int) -> IntArray:
    """All leaves below a node."""
    found, waiting = [], [start]
    while waiting:
        node = waiting.pop()
        if left[node] == node:
            found.append(node)
        else:
            waiting += [int(left[node]), int(right[node])]
    return np.array(found, np.int64)
