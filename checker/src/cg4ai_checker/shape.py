"""Shapes in a feature, rising or convex, that members keep by how they are built.

Of each unit it is followed on paths of nonzero weights whether it may rise, fall, bend up or bend
down with a feature. A mixture with weights of at least zero does nothing that no member may do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.caps import Limit, limits_of, moves_of
from cg4ai_checker.claim import Heading, fields, listed, whole
from cg4ai_checker.errors import Rejected
from cg4ai_checker.file import Content
from cg4ai_checker.folder_reader import MemberState, below, member_state, member_states
from cg4ai_checker.scale import LARGEST_PRODUCT, LARGEST_SUM, within_scale

KEYS = {
    *("kind", "title", "requirement", "input_size", "output_size", "asks", "members"),
    *("made_by", "about"),
}
LARGEST_INPUT = 1e200  # times LARGEST_SUM still is a float64 number
MOST_SETS = 2**16  # outputs to the power of the sets around each other that they are moved into
ASKS = {"shape", "features", "output", "ordered", "logits"}
BROKEN = {"monotone": {1: "fall", -1: "rise"}, "curvature": {1: "down", -1: "up"}}
WORDS = {
    ("monotone", 1): "never falls with",
    ("monotone", -1): "never rises with",
    ("curvature", 1): "is convex in",
    ("curvature", -1): "is concave in",
}
Arrays = Mapping[str, NDArray[Any]]
May = dict[str, NDArray[np.bool_]]  # for each of several units: rise, fall, up, down
# arrays whose numbers are counted or compared, not added
COMPARED = {
    *("feature", "left", "right", "missing", "subset", "subsets", "threshold"),
    *("low", "high", "least", "most", "output", "side"),
}
EACH = -1  # of nested members: each class against all others
SWAPPED = {"rise": "fall", "fall": "rise", "up": "down", "down": "up"}


class ShapeClaim(Heading):
    """A validated claim: what is asked of which sums of outputs, and the stacks of members."""

    def __init__(self, content: Content) -> None:
        claim = fields(content.claim, KEYS, "the claim")
        super().__init__(claim)
        asks = fields(claim["asks"], ASKS, "asks")
        if asks["shape"] not in BROKEN:
            raise Rejected(f"the shape must be one of {list(BROKEN)}")
        self.shape: str = asks["shape"]
        self.features = [self._feature(one) for one in listed(asks["features"], "features")]
        if not self.features or len({j for j, _ in self.features}) < len(self.features):
            raise Rejected("features must be named, each once")
        self.output = asks["output"]
        if self.output is not None and whole(self.output, "output", least=0) >= self.output_size:
            raise Rejected(f"there is no output {self.output}")
        self.ordered, self.logits = asks["ordered"] is True, asks["logits"] is True
        if (asks["ordered"], asks["logits"]) != (self.ordered, self.logits):
            raise Rejected("ordered and logits must be true or false")
        self.states = member_states(listed(claim["members"], "members"), content.arrays)

    def _feature(self, pair: Any) -> tuple[int, int]:
        if not isinstance(pair, list) or len(pair) != 2 or pair[1] not in (1, -1):
            raise Rejected("a feature is [position, 1 or -1]")
        feature = whole(pair[0], "a feature", least=0)
        if feature >= self.input_size:
            raise Rejected(f"there is no feature {feature}")
        return feature, int(pair[1])

    def sums(self, *, softmax: bool) -> list[dict[int, int]]:
        """The sums of outputs, or of scores under a softmax, {output: 1 or -1}, that it is about.

        The probability of a class rises if its score rises against each other score; the chance of
        a class or a higher one if the score of each class rises against the one before.
        """
        size = self.output_size
        if softmax or self.logits:
            if self.shape != "monotone" and softmax:
                raise Rejected("a softmax keeps no curvature")
            if self.logits and softmax:
                raise Rejected("logits are asked about, and these members give probabilities")
            if self.ordered:
                return [{k + 1: 1, k: -1} for k in range(size - 1)]
            if self.output is None:
                raise Rejected("it is not said which class is meant")
            return [{self.output: 1, k: -1} for k in range(size) if k != self.output]
        if self.ordered:
            if size * size > LARGEST_PRODUCT:
                raise Rejected(
                    f"the chances of {size} classes in order are too many to be checked",
                    code="memory",
                )
            return [dict.fromkeys(range(k, size), 1) for k in range(1, size)]
        return [{k: 1} for k in range(size) if self.output in (None, k)]

    def verify_stored(self, state: MemberState, used: NDArray[np.integer[Any]], what: str) -> None:
        """Rejected unless each used member of a stack can be seen to keep the shape."""
        _refuse_deep(state, self.output_size)
        state = replace(state, arrays=_examined(state.arrays, what))
        for member in used.tolist():
            for feature, sign in self.features:
                broken = BROKEN[self.shape][sign]
                if self._may(state, member, feature)[broken].any():
                    raise Rejected(
                        f"not proven: member {member} of {what} has a path by which the outputs "
                        f"may {broken if self.shape == 'monotone' else 'bend ' + broken} with "
                        f"feature {feature}",
                        code="not-proven",
                    )

    def _may(self, state: MemberState, member: int, feature: int) -> May:
        """What the sums that are asked about may do with a feature."""
        if state.kind in SIZED and _sizes(state) != (self.input_size, self.output_size):
            raise Rejected("members have other inputs or outputs than the claim")
        if state.kind == "constant":
            return _nothing(1)
        if state.kind == "network":
            groups = state.config["output"]
            if groups not in ("linear", "softmax"):
                raise Rejected("networks of several groups of outputs show no shape")
            sums = self.sums(softmax=groups == "softmax")
            return _of_network(state.config, state.arrays, member, feature, sums)
        if state.kind == "tree":
            sums = self.sums(softmax=state.config["link"] == "softmax")
            return _of_trees(state.arrays, member, feature, sums)
        if state.kind == "arranged":
            return self._arranged(state, member, feature)
        if state.kind == "capped":
            return self._capped(state, member, feature)
        if state.kind == "nested":
            return self._nested(state, member, feature)
        raise Rejected(f"members of kind {state.kind!r} show no shape by how they are built")

    def _arranged(self, state: MemberState, member: int, feature: int) -> May:
        """Sorted, clamped and summing outputs; each sorted output may do what all of them may."""
        if self.ordered or self.logits:
            raise Rejected("outputs that are arranged are no scores of classes")
        inner = member_state(state.config["inner"], below(state.arrays, "inner."))
        own, asked = state.config["set"], self.output
        if own["totals"]:
            raise Rejected("outputs that are made to sum to a total move with each other")
        chains = [chain for chain in own["chains"] if asked is None or asked in chain]
        ends = np.stack([state.arrays[f"set.{name}"] for name in ("low", "high")])
        if ends.shape[1:] != (self.output_size,) or not (ends[0] <= ends[1]).all():
            raise Rejected("ends of a stored set cross, or are not those of the claim's outputs")
        outputs = sorted({*range(self.output_size)} if asked is None else {asked}.union(*chains))
        whole_claim = self._about(outputs)
        parts = [one._may(inner, member, feature) for one in whole_claim]
        may = {name: np.array([part[name].any() for part in parts]) for name in SWAPPED}
        moved = may["rise"] | may["fall"]
        for bend, end in zip(("up", "down"), ends[:, outputs], strict=True):
            # sorting bends both ways, max(low, .) up alone, min(., high) down alone
            may[bend] = may[bend] | (moved & (bool(chains) | np.isfinite(end)))
        return may

    def _capped(self, state: MemberState, member: int, feature: int) -> May:
        """Outputs clamped to limits, which are functions of the input themselves.

        Of probabilities a single one is clamped, and of two the other does the opposite.
        """
        if self.ordered or self.logits:
            raise Rejected("outputs that are clamped are no scores of classes in order")
        inner = member_state(state.config["inner"], below(state.arrays, "inner."))
        limits, share = limits_of(state, self.input_size, self.output_size)
        may = {name: found.copy() for name, found in self._may(inner, member, feature).items()}
        if share is not None:
            if self.output != share and (self.output_size > 2 or self.output is None):
                raise Rejected("the shape is about another probability than the limits")
            own = _clamped(limits, share, feature, moved=False)
            names = SWAPPED if self.output != share else dict(zip(SWAPPED, SWAPPED, strict=True))
            return {name: found | own[names[name]] for name, found in may.items()}
        outputs = [k for k in range(self.output_size) if self.output in (None, k)]
        for place in range(len(may["rise"])):
            # rows of members that give one for all outputs count for each of them
            for output in outputs if len(may["rise"]) == 1 else outputs[place : place + 1]:
                moved = bool(may["rise"][place] or may["fall"][place])
                for name, more in _clamped(limits, output, feature, moved=moved).items():
                    may[name][place] |= more
        return may

    def _nested(self, state: MemberState, member: int, feature: int) -> May:
        """Chances that are taken from parts of the member as they are, or sorted first.

        With a class of its own the first of two parts has its probability; without, part k - 1 has
        the chance of class k or a higher one. With EACH part k has that of class k against others.
        """
        inner, own, count = _parts(state)
        if self.logits or (own is None) != self.ordered or own not in (EACH, self.output):
            raise Rejected("members are nested for other classes than it is asked about")
        if inner.arrays["value"].shape[-1] != self.output_size:
            raise Rejected("parts of nested members have other outputs than the claim")
        bound = list(range(1, self.output_size)) if own is None else [own]
        if own == EACH:
            if self.output is None:
                raise Rejected("it is not said which class is meant")
            bound = list(range(self.output_size))
        parts = [
            one._may(inner, member * count + number, feature)
            for number, one in enumerate(self._about(bound))
        ]
        if own == EACH:  # a share of a sum rises where its own part rises and all others fall
            parts = [
                part if k == self.output else {name: part[other] for name, other in SWAPPED.items()}
                for k, part in enumerate(parts)
            ]
        return {name: np.array([part[name].any() for part in parts]) for name in SWAPPED}

    def _about(self, outputs: list[int]) -> list[ShapeClaim]:
        """The same claim about each of these outputs."""
        made = []
        for output in outputs:
            one = object.__new__(ShapeClaim)
            one.__dict__ = {**self.__dict__, "output": output, "ordered": False}
            made.append(one)
        return made

    def __str__(self) -> str:
        subject = "Each output"
        if self.output is not None:
            subject = f"Output {self._name('outputs', self.output)}"
        if self.logits:
            subject = f"{subject} minus each other"
        if self.ordered:
            subject = "The chance of class k or a higher one, for every k,"
        said = [
            f"{WORDS[self.shape, sign]} feature {self._name('features', j)}"
            for j, sign in self.features
        ]
        return f"{subject} {', '.join(said)}."

    def _name(self, kind: str, number: int) -> str:
        named = self.about.get(kind)
        return named[number] if isinstance(named, list) else str(number)


@dataclass(frozen=True)
class ShapeVerdict:
    """What has been proven of a shape; all else is `Rejected`."""

    claim: ShapeClaim
    digest: str
    members: int
    seconds: float

    def __str__(self) -> str:
        claim = self.claim
        return "\n".join(
            [
                f"Proven: {claim.requirement!r} of {claim.title}.",
                f"  This holds at every input of numbers up to {LARGEST_INPUT:g} in size, for "
                f"every mixture of these {self.members} members.",
                "  Rounding of the prediction is not included: see 'Structure' in "
                "docs/mathematics.md.",
                f"  {claim}",
                f"  Read off the signs of all weights, {self.seconds:.1f} s.",
                f"  Certificate sha256 {self.digest}.",
            ]
        )


UNREADABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError)


def check_shape(content: Content) -> ShapeVerdict:
    """Verify a certificate of a shape; Rejected unless every member can be seen to keep it."""
    started, members = time.perf_counter(), 0
    try:
        claim = ShapeClaim(content)
        for number, state in enumerate(claim.states):
            count = _count(state)
            if count > content.size:
                raise Rejected(f"stack {number} has more members than the file has bytes")
            claim.verify_stored(state, np.arange(count), f"stack {number}")
            members += count
    except UNREADABLE as error:
        if isinstance(error, Rejected):
            raise
        raise Rejected(f"the members are not described as they should be: {error!r}") from error
    if not members:
        raise Rejected("the certificate has no member")
    return ShapeVerdict(claim, content.digest, members, time.perf_counter() - started)


SIZED = {"constant": "values", "tree": "value", "network": "bias_{depth}"}  # outputs come last


def _sizes(state: MemberState) -> tuple[int, int]:
    """Inputs and outputs of members that are not made of others."""
    name = SIZED[state.kind]
    depth = len(state.config.get("hidden", ()))
    return state.config["input_size"], state.arrays[name.format(depth=depth)].shape[-1]


def _refuse_deep(state: MemberState, size: int) -> None:
    """Rejected where following each output through all sets around each other would not end."""
    depth, kind, config = 0, state.kind, state.config
    while kind in ("arranged", "capped"):
        depth, kind, config = (
            depth + (kind == "arranged"),
            config["inner"]["kind"],
            config["inner"]["config"],
        )
    if depth > 1 and max(size, 2) ** depth > MOST_SETS:
        raise Rejected(
            f"members are arranged {depth} times over, too often to be followed", code="memory"
        )


def _count(state: MemberState) -> int:
    """How many members a stack has."""
    if state.kind == "nested":
        inner, _, parts = _parts(state)
        return _count(inner) // parts
    if state.kind in ("arranged", "capped"):
        return _count(member_state(state.config["inner"], below(state.arrays, "inner.")))
    return len(state.arrays[{"constant": "values", "tree": "value"}.get(state.kind, "weight_0")])


def _parts(state: MemberState) -> tuple[MemberState, int | None, int]:
    """The trees that nested members are made of, the class that is bound, how many make one."""
    inner = member_state(state.config["inner"], below(state.arrays, "inner."))
    own = state.config["nesting"]["output"]
    if inner.kind != "tree" or not (own is None or type(own) is int):
        raise Rejected("nested members are made of trees, for one class or for all in order")
    size = inner.arrays["value"].shape[-1]
    parts = {None: size - 1, EACH: size}.get(own, 2)
    if parts < 1 or len(inner.arrays["value"]) % parts:
        raise Rejected(f"nested members are made of {parts} parts each, and some are missing")
    return inner, own, parts


def _clamped(limits: list[Limit], output: int, feature: int, *, moved: bool) -> dict[str, bool]:
    """What an output may do in addition where it is clamped; the smaller of two bends down."""
    may = moves_of(limits, output, feature)
    if moved or may["rise"] or may["fall"]:
        may["down"] |= any(one.output == output and one.side > 0 for one in limits)
        may["up"] |= any(one.output == output and one.side < 0 for one in limits)
    return may


def _nothing(count: int) -> May:
    return {name: np.zeros(count, bool) for name in SWAPPED}


def _summed(signs: NDArray[Any], may: May) -> May:
    """What sums of units may do, given the signs (sums, units) of their weights."""
    return {
        name: np.asarray((((signs > 0) & may[name]) | ((signs < 0) & may[other])).any(axis=1))
        for name, other in SWAPPED.items()
    }


def _of_network(
    config: Any, arrays: Arrays, member: int, feature: int, sums: list[dict[int, int]]
) -> May:
    scale = arrays.get("normalise_scale")
    if scale is not None and not (np.isfinite(scale) & (scale > 0)).all():
        raise Rejected("inputs are divided by numbers that are not above zero")
    depth, activation = len(config["hidden"]), config["activation"]
    _refuse_overflow(depth, arrays, member)
    inputs = _nothing(int(config["input_size"]))
    inputs["rise"][feature] = True
    may = inputs
    for layer in range(depth):
        may = _summed(np.sign(arrays[f"weight_{layer}"][member]), may)
        moved = may["rise"] | may["fall"]
        if activation == "relu":
            may["up"] |= moved
        elif activation == "tanh":
            may |= {"up": moved, "down": moved}
        else:
            may = dict.fromkeys(SWAPPED, moved)
    found = _summed(_signs(arrays[f"weight_{depth}"][member], sums), may)
    if config["skip"]:
        straight = _summed(_signs(arrays["skip"][member], sums), inputs)
        found = {name: found[name] | straight[name] for name in SWAPPED}
    return found


def _examined(arrays: Arrays, what: str) -> dict[str, NDArray[Any]]:
    """The arrays of a stack, those that sums are made of in float64 and of sane magnitude."""
    found = dict(arrays)
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise Rejected(f"{name} of {what} must hold numbers, got the dtype {array.dtype}")
        if name.rpartition(".")[2] not in COMPARED:
            found[name] = array.astype(np.float64)
            within_scale(found[name], f"{name} of {what}")
    return found


@np.errstate(over="ignore", invalid="ignore")
def _refuse_overflow(depth: int, arrays: Arrays, member: int) -> None:
    """Rejected unless no sum exceeds LARGEST_SUM times the largest input, or times 1.

    What overflows becomes infinite, the difference of two such numbers none, and that counts as 0
    where outputs are arranged. No activation is larger than what it is taken of.
    """
    width = arrays["weight_0"].shape[2]
    shift = arrays.get("normalise_shift", np.zeros(width))
    inputs = (1 + np.abs(shift)) / arrays.get("normalise_scale", np.ones(width))
    sizes = [inputs]
    for layer in range(depth + 1):
        weight, bias = arrays[f"weight_{layer}"][member], arrays[f"bias_{layer}"][member]
        sizes.append(np.abs(weight) @ sizes[-1] + np.abs(bias))
    if "skip" in arrays:
        sizes[-1] = sizes[-1] + np.abs(arrays["skip"][member]) @ inputs
    if not all((one <= LARGEST_SUM).all() for one in sizes):
        raise Rejected(
            f"sums inside member {member} can exceed {LARGEST_SUM:g} times its inputs, beyond "
            "which they may overflow",
            code="not-finite",
        )


def _signs(weight: NDArray[Any], sums: list[dict[int, int]]) -> NDArray[Any]:
    """(sums, units): the signs of sums of rows of the last layer, without rounding."""
    if sum(map(len, sums)) * weight.shape[1] > max(LARGEST_PRODUCT, 2 * weight.size):
        raise Rejected("sums of outputs have too many terms to be checked", code="memory")
    made = np.zeros((len(sums), weight.shape[1]), np.int64)
    for number, one in enumerate(sums):
        for unit in range(weight.shape[1]):
            terms = (sign * Fraction(float(weight[output, unit])) for output, sign in one.items())
            total = sum(terms)
            made[number, unit] = (total > 0) - (total < 0)
    return made


def _of_trees(arrays: Arrays, member: int, feature: int, sums: list[dict[int, int]]) -> May:
    """Inputs that differ in the feature part at a node that asks for it: all leaves there count."""
    found = _nothing(len(sums))
    if not arrays["factor"][member] >= 0:
        raise Rejected("trees are subtracted")
    value = arrays["value"][member]
    for tree in range(value.shape[0]):
        names, left, right = (arrays[name][member, tree] for name in ("feature", "left", "right"))
        nodes = np.arange(len(left))
        if not (((left == nodes) & (right == nodes)) | ((left > nodes) & (right > nodes))).all():
            raise Rejected("a node of a tree does not point to later nodes")
        subset = arrays["subset"][member, tree] if "subset" in arrays else np.full(len(left), -1)
        for number, one in enumerate(sums):
            leaf = sum(sign * value[tree, :, output] for output, sign in one.items())
            ends = [(float(number), float(number)) for number in np.asarray(leaf)]
            for node in reversed(range(len(left))):
                if left[node] == node:
                    continue
                low, high = ends[left[node]], ends[right[node]]
                ends[node] = min(low[0], high[0]), max(low[1], high[1])
                if names[node] == feature:
                    found["fall"][number] |= low[1] > high[0] or subset[node] >= 0
                    found["rise"][number] |= high[1] > low[0] or subset[node] >= 0
    moved = found["rise"] | found["fall"]
    return found | {"up": moved, "down": moved}
