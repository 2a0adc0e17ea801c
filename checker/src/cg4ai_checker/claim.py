"""What a certificate claims, validated to the last number before anything is proven from it."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.cells import check_tree
from cg4ai_checker.errors import Rejected
from cg4ai_checker.file import Content
from cg4ai_checker.parts import PartSource, build_part
from cg4ai_checker.region import Region
from cg4ai_checker.scale import (
    LARGEST,
    LARGEST_SUM,
    UNDERFLOW,
    UNIT,
    refuse_large,
    within_scale,
)
from cg4ai_checker.summed_rules import Totals, checked_totals, given
from cg4ai_checker.sums import checked_sums
from cg4ai_checker.terms import Coefficients, Limits, Member, RuleTerms

CLAIM_KEYS = {
    *("title", "requirement", "region", "input_size", "output_size", "blocks", "parts"),
    *("rules", "margin", "made_by", "about", "shield"),
}
NAMES = ("features", "outputs", "target", "task", "scores")  # what a mixture may say of itself
RULE_ARRAYS = (
    *("rule_constant", "slope_rule", "slope_output", "slope_input", "slope_value", "limit"),
    *(
        "square_rule",
        "square_factor",
        "quadratic",
        "tilt",
        "piece",
        "tree_start",
        "tree_dimension",
        "leaf_start",
        "leaf_bound",
        "leaf_use",
    ),
)
SHIELDED = ("members", "mixture")  # what a shield may be of
SAME_ENTRY = 1e-9  # to which squares are those of a quadratic, of the diagonal entries' mean
SLIP = 1e-6  # more than the rounding of what outputs do not exceed in size
LEAST_SHARE = 1e-3  # that shares sum up to: they are divided by their sum
WEIGHT_SUM = 1e-9  # how far from one the weights of a block may sum
LARGEST_WHOLE = 2**31 - 1
LARGEST_RULE = 2**23  # coefficients of one rule, 64 MiB, or as many as the file has bytes
LONGEST_TEXT = 300
SHOWN = 5  # names that are listed in an error


class Heading:
    """What every claim says first: its title, rule and sizes, who made it, and names."""

    def __init__(self, claim: dict[str, Any]) -> None:
        self.title = text(claim["title"], "title")
        self.requirement = text(claim["requirement"], "requirement")
        self.input_size = whole(claim["input_size"], "input_size")
        self.output_size = whole(claim["output_size"], "output_size")
        self.made_by = text(fields(claim["made_by"], {"cg4ai"}, "made_by")["cg4ai"], "made_by")
        self.about = names_of(claim["about"], self.input_size, self.output_size)


class Claim(Heading):
    """A validated claim: region, mixture, rules and their trees of cells."""

    def __init__(self, content: Content) -> None:
        self._arrays = content.arrays
        more = {"totals"} if given(content.claim) else set()
        claim = fields(content.claim, CLAIM_KEYS | more, "the claim")
        super().__init__(claim)
        if self.input_size * self.output_size > max(LARGEST_RULE, content.size):
            raise Rejected(
                f"inputs times outputs exceed {LARGEST_RULE} and the bytes of the file, too many "
                "to be checked",
                code="memory",
            )
        margin = claim["margin"]
        if type(margin) not in (int, float) or not 0 <= margin < LARGEST:
            raise Rejected("margin must be a number of at least 0", code="type")
        self.region = self._region(fields(claim["region"], {"kind", "norm"}, "region"))
        self.blocks = self._blocks(claim["blocks"])
        self.rule_names = [
            text(fields(rule, {"name"}, "a rule")["name"], "a rule's name")
            for rule in listed(claim["rules"], "rules")
        ]
        self.sources = self._sources(listed(claim["parts"], "parts"))
        self._rules()
        self.totals = self._totals(claim["totals"]) if more else None
        sums = "sum_group" in self._arrays and self._take(
            "sum_group", (self.output_size,), np.int64
        )
        if self._arrays:
            raise Rejected(
                f"the archive holds {len(self._arrays)} arrays of no use, such as "
                f"{sorted(self._arrays)[:SHOWN]}"
            )
        self.size = content.size
        self.members = self._members()
        self.sums = checked_sums(None if sums is False else sums, self)
        self.everywhere = False  # whether the shield acts outside the region as well
        self.shield = self._shield(claim["shield"])

    def _take(self, name: str, shape: tuple[int | None, ...], dtype: Any = np.float64) -> Any:
        if name not in self._arrays:
            raise Rejected(f"the array {name!r} is missing")
        return checked(self._arrays.pop(name), name, shape, dtype)

    def _region(self, region: dict[str, Any]) -> Region:
        size = (self.input_size,)
        lower, upper = self._take("lower", size), self._take("upper", size)
        if (lower > upper).any():
            raise Rejected("the region is empty: lower exceeds upper", code="empty")
        if region == {"kind": "box", "norm": None}:
            return Region(lower, upper)
        if region == {"kind": "polytope", "norm": None}:
            rows = self._take("region_rows", (None, self.input_size))
            return Region(lower, upper, rows=rows, most=self._take("region_most", (len(rows),)))
        norms = {2: 2.0, "max": math.inf}
        if region["kind"] != "ball" or region["norm"] not in tuple(norms):
            raise Rejected(
                f"the region must be a box, a polytope, or a ball of norm 2 or max, got {region}"
            )
        centre, radius = self._take("centre", size), self._take("radius", ())
        if radius <= 0:
            raise Rejected(f"the radius of a ball must be above 0, got {radius}", code="range")
        # rounding keeps the order: no float64 input of the ball lies outside these ends
        if (lower > centre - radius).any() or (upper < centre + radius).any():
            raise Rejected("the box of cells does not hold the whole ball")
        return Region(lower, upper, centre, float(radius), norms[region["norm"]])

    def _shield(self, given: Any) -> str | None:
        """Whose outputs a shield moves to the anchor that the members are; None without a shield.

        The anchor of members is one member with all outputs, as a member's own outputs are.
        """
        if given is None:
            return None
        if isinstance(given, dict) and "everywhere" in given:
            if given["everywhere"] is not True:
                raise Rejected("a shield acts everywhere, which is true, or does not say so")
            self.everywhere = True
        of = fields(given, {"of", *(["everywhere"] if self.everywhere else [])}, "shield")["of"]
        if of not in SHIELDED:
            raise Rejected(f"a shield is of {' or of '.join(SHIELDED)}, got {of!r:.80}")
        weights = [member.weight for own in self.members for member in own]
        if of == "members" and (len(self.blocks) > 1 or weights != [1.0]):
            raise Rejected("the anchor of shielded members must be one member of weight 1")
        if of == "members" and (self.blocks[0] != np.arange(self.output_size)).any():
            raise Rejected("the anchor of shielded members must have its outputs in their order")
        return str(of)

    def _blocks(self, given: Any) -> list[NDArray[np.int64]]:
        blocks = []
        for block in listed(given, "blocks"):
            positions = [
                whole(position, "a block's output", least=0)
                for position in listed(block, "a block", empty=False)
            ]
            blocks.append(np.array(positions, np.int64))
        named = sum(len(block) for block in blocks)
        # the count first: a size that is merely claimed must not fill the memory
        if named != self.output_size or not np.array_equal(
            np.sort(np.concatenate(blocks)), np.arange(named)
        ):
            raise Rejected("the blocks do not name every output exactly once")
        return blocks

    def _sources(self, given: list[Any]) -> list[PartSource]:
        sources = []
        for number, entry in enumerate(given):
            part = fields(entry, {"kind", "config", "blocks", "arrays"}, f"part {number}")
            names = [text(name, "an array's name") for name in listed(part["arrays"], "arrays")]
            if len(set(names)) != len(names):
                raise Rejected(f"part {number} names an array twice", code="duplicate")
            start = f"part{number}."
            weights = self._take(f"{start}weights", (None,))
            arrays: dict[str, NDArray[Any]] = {}
            for name in names:
                if f"{start}{name}" not in self._arrays:
                    raise Rejected(f"the array {start}{name} is missing")
                arrays[name] = self._arrays.pop(f"{start}{name}")
            blocks = np.array(
                [whole(b, "a member's block", least=0) for b in listed(part["blocks"], "blocks")],
                np.int64,
            )
            kind, config = text(part["kind"], "kind"), part["config"]
            sources.append(PartSource(kind, config, arrays, blocks=blocks, weights=weights))
        return sources

    def _members(self) -> list[list[Member]]:
        """The members of each block, all checked."""
        members: list[list[Member]] = [[] for _ in self.blocks]
        for source in self.sources:
            part = build_part(source, self.input_size, (self.region.lower, self.region.upper))
            for mass in part.masses:
                if not (mass <= LARGEST_SUM).all():
                    raise Rejected(
                        f"sums inside a member may reach {mass.max():.3g} on the region, above "
                        f"{LARGEST_SUM:g}: rounding is not bounded there",
                        code="range",
                    )
            if not part.count == len(source.blocks) == len(source.weights):
                raise Rejected("a part has not as many members as blocks and weights")
            if (source.weights <= 0).any():
                raise Rejected(
                    f"weights must be positive, got {source.weights.min()}", code="range"
                )
            for index, (block, weight) in enumerate(
                zip(source.blocks.tolist(), source.weights.tolist(), strict=True)
            ):
                if block >= len(self.blocks):
                    raise Rejected(f"a member names block {block} of {len(self.blocks)}")
                if part.output_size < len(self.blocks[block]):
                    raise Rejected(f"a member of block {block} has too few outputs")
                members[block].append(Member(part, index, weight))
        for number, own in enumerate(members):
            total = math.fsum(member.weight for member in own)
            if abs(total - 1) > WEIGHT_SUM:
                raise Rejected(f"the weights of block {number} sum to {total!r}, not to 1")
        return members

    def _rules(self) -> None:
        count, size = len(self.rule_names), self.output_size
        if count == 0:
            raise Rejected("the certificate has no rule", code="empty")
        self.constant: Array = self._take("rule_constant", (count, size))
        self._limits(count)
        self.slope_value: Array = self._take("slope_value", (None,))
        entries = (len(self.slope_value),)
        self.slope_rule = self._index("slope_rule", entries, count)
        self.slope_output = self._index("slope_output", entries, size)
        self.slope_input = self._index("slope_input", entries, self.input_size)
        # a sum of several entries would be rounded: 1e60 + 1 - 1e60 is not 0
        place = np.ravel_multi_index((self.slope_output, self.slope_input), (size, self.input_size))
        if len(np.unique(place + self.slope_rule * (size * self.input_size))) < len(place):
            raise Rejected("two slopes stand at one rule, output and input", code="duplicate")
        self.square_factor: Array = self._take("square_factor", (None, size))
        self.square_rule = self._index("square_rule", (len(self.square_factor),), count)
        # certificates made before 0.8 state squares alone: these are what is proven then
        stated = "quadratic" in self._arrays
        self.quadratic: Array | None = None
        if stated:
            self.quadratic = self._take("quadratic", (count, size, size))
        dimensions = self._take("tree_dimension", (None,), np.int16)
        bounds = self._take("leaf_bound", (None,), None)
        tree_start = self._starts("tree_start", len(dimensions))
        leaf_start = self._starts("leaf_start", len(bounds))
        self.trees = np.split(dimensions, tree_start[1:-1])
        leaf_bounds = np.split(bounds, leaf_start[1:-1])
        self.uses = self._uses(np.diff(leaf_start))
        whole_box = self.region.centre is None and self.region.rows is None
        for rule, (tree, own) in enumerate(zip(self.trees, leaf_bounds, strict=True)):
            name = self.rule_names[rule]
            if check_tree(tree, self.input_size, name=name) != len(own):
                raise Rejected(f"{name} has not as many bounds as leaves")
            if not (own <= self.target[rule]).all():
                raise Rejected(f"{name} has a leaf whose own bound is above the limit")
            if whole_box and not np.isfinite(own).all():
                raise Rejected(f"{name} has a leaf without a finite bound", code="not-finite")

    def _limits(self, count: int) -> None:
        """Rule l is at most the largest `limit + tilt . x` of the pieces p with piece[p] == l.

        `target` (count,) is what bounds of rules are compared with: the limit, or 0 for the excess
        over limits that depend on the input.
        """
        self.limit: Array = self._take("limit", (None,))
        self.tilt: Array = self._take("tilt", (len(self.limit), self.input_size))
        self.piece: NDArray[np.int64] = self._take("piece", (len(self.limit),), np.int64)
        steps = np.diff(np.concatenate([[-1], self.piece, [count]]))
        # no rule without a piece: its limit would be that of nothing
        if not np.isin(steps, (0, 1)).all() or steps[0] != 1 or steps[-1] != 1:
            raise Rejected(
                f"piece must rise from 0 to {count - 1} without leaving out a rule", code="range"
            )
        first = np.searchsorted(self.piece, np.arange(count))
        tilted = np.zeros(count, bool)
        tilted[self.piece[self.tilt.any(axis=1)]] = True
        self.plain = (np.bincount(self.piece, minlength=count) == 1) & ~tilted
        self.target: Array = np.where(self.plain, self.limit[first], 0.0)

    def _totals(self, stated: Any) -> Totals:
        names = [
            text(fields(one, {"name"}, "a total")["name"], "a total's name")
            for one in listed(stated, "totals")
        ]
        of_rule = self._index("total_of", (len(self.rule_names),), len(names))
        return checked_totals(names, of_rule, self._take("total_limit", (len(names),)), self)

    def _uses(self, leaves: NDArray[np.int64]) -> list[tuple[Array, Array]]:
        """For each rule (leaves, limits) and (leaves, rows): shares and multipliers of its leaves.

        Rules whose limit is one number have no shares.
        """
        rows = self.region.row_count
        limits = np.where(self.plain, 0, np.bincount(self.piece, minlength=len(self.plain)))
        sizes = leaves * (limits + rows)
        given: Array = self._take("leaf_use", (int(sizes.sum()),))
        if (given < 0).any():
            raise Rejected(
                f"shares and multipliers must be at least 0, got {given.min()}", code="range"
            )
        uses = []
        for own, count in zip(np.split(given, np.cumsum(sizes)[:-1]), limits.tolist(), strict=True):
            table = own.reshape(-1, count + rows) if count + rows else np.zeros((0, 0))
            shares, multipliers = table[:, :count], table[:, count:]
            if count and not (shares.sum(axis=1) >= LEAST_SHARE).all():
                raise Rejected("the shares of a leaf's limits must not all be zero")
            uses.append((shares, multipliers))
        return uses

    def _index(self, name: str, shape: tuple[int, ...], end: int) -> NDArray[np.int64]:
        index: NDArray[np.int64] = self._take(name, shape, np.int64)
        if len(index) and (index.min() < 0 or index.max() >= end):
            raise Rejected(f"{name} must lie in 0..{end - 1}", code="range")
        return index

    def _starts(self, name: str, end: int) -> NDArray[np.int64]:
        starts: NDArray[np.int64] = self._take(name, (len(self.rule_names) + 1,), np.int64)
        if starts[0] != 0 or starts[-1] != end or (starts[1:] < starts[:-1]).any():
            raise Rejected(f"{name} must rise from 0 to {end}", code="range")
        return starts

    def terms(self, rule: int) -> RuleTerms:
        """The blocks that enter a rule, with their coefficients, its squares and its limits."""
        slope = np.zeros((self.output_size, self.input_size))
        chosen = self.slope_rule == rule
        at = (self.slope_output[chosen], self.slope_input[chosen])
        slope[at] = self.slope_value[chosen]
        flat = np.zeros_like(slope)
        squares = [
            (RuleTerms(self._blocks_of(factor, flat)), RuleTerms(self._blocks_of(-factor, flat)))
            for factor in self.square_factor[self.square_rule == rule]
        ]
        own = self.piece == rule
        return RuleTerms(
            self._blocks_of(self.constant[rule], slope),
            None if self.plain[rule] else Limits(self.limit[own], self.tilt[own]),
            squares,
            self._missed(rule),
        )

    def _missed(self, rule: int) -> float:
        """What the quadratic of a rule exceeds its squares by at most, anywhere in the region.

        `y' Q y - sum of (factor . y)^2` is at most the sizes of the entries of Q less those of the
        factor, rounding included, times the largest outputs.
        """
        if self.quadratic is None:
            return 0.0
        given, factor = self.quadratic[rule], self.square_factor[self.square_rule == rule]
        refuse_large(given, given, least=self.size)
        half, size = given / 2 + given.T / 2, np.abs(given) + np.abs(given.T)
        products = np.abs(factor).T @ np.abs(factor)
        entries = np.abs(half - factor.T @ factor) + UNIT * (len(factor) + 8) * (size + products)
        unit = np.sqrt(np.maximum(np.diag(half), 0.0))
        # more than rounding: outputs that keep the rule need not be a convex set
        if not (entries <= SAME_ENTRY * np.outer(unit, unit) + UNDERFLOW).all():
            raise Rejected(
                f"the squares of {self.rule_names[rule]} are not those of the quadratic it states"
            )
        largest = self._largest
        return float(largest @ entries @ largest) * (1 + SLIP) + UNDERFLOW * bool(given.any())

    @cached_property
    def _largest(self) -> Array:
        """(output_size,): what the mixture's outputs do not exceed in size on the region."""
        largest = np.zeros(self.output_size)
        for block, members in zip(self.blocks, self.members, strict=True):
            for member in members:
                part = member.part
                mass = np.ones(part.output_size) if part.groups else part.masses[-1][member.index]
                largest[block] += member.weight * mass[: len(block)]
        return largest * (1 + SLIP)

    def _blocks_of(self, constant: Array, slope: Array) -> list[tuple[Coefficients, list[Member]]]:
        """The blocks whose outputs have a coefficient other than zero."""
        found = []
        for block, members in zip(self.blocks, self.members, strict=True):
            own = Coefficients(constant[block], slope[block])
            if own.constant.any() or own.slope.any():
                found.append((own, members))
        return found

    @property
    def member_count(self) -> int:
        return sum(len(own) for own in self.members)


def names_of(about: Any, input_size: int, output_size: int) -> dict[str, str | list[str]]:
    """Names of inputs and outputs: texts, or lists of as many as there are."""
    if not isinstance(about, dict) or not set(about) <= set(NAMES):
        raise Rejected(f"about must be an object with some of {list(NAMES)}", code="type")
    sizes = {"features": input_size, "outputs": output_size}
    for name, value in about.items():
        if name not in sizes:
            text(value, name)
        elif len(listed(value, name)) != sizes[name]:
            raise Rejected(f"{name} must be a list of {sizes[name]} names", code="type")
        else:
            for one in value:
                text(one, f"a name of {name}")
    return about


def fields(value: Any, keys: set[str], what: str) -> dict[str, Any]:
    """`value` if it is an object with exactly these keys."""
    if not isinstance(value, dict) or set(value) != keys:
        raise Rejected(f"{what} must be an object with {sorted(keys)}", code="type")
    return value


def listed(value: Any, what: str, *, empty: bool = True) -> list[Any]:
    if not isinstance(value, list) or (not value and not empty):
        raise Rejected(f"{what} must be a list{'' if empty else ' of at least one'}", code="empty")
    return value


def text(value: Any, what: str) -> str:
    """`value` if it is one short line: what is printed must not pass for the checker's words."""
    if not isinstance(value, str):
        raise Rejected(f"{what} must be text", code="type")
    if not value.isprintable() or len(value) > LONGEST_TEXT:
        raise Rejected(
            f"{what} must be one line of at most {LONGEST_TEXT} characters without control "
            f"characters, got {value[:LONGEST_TEXT]!r}",
            code="bad-name",
        )
    return value


def whole(value: Any, what: str, *, least: int = 1) -> int:
    if type(value) is not int or not least <= value <= LARGEST_WHOLE:
        raise Rejected(
            f"{what} must be a whole number between {least} and {LARGEST_WHOLE}", code="range"
        )
    return value


def checked(array: NDArray[Any], name: str, shape: tuple[int | None, ...], dtype: Any) -> Any:
    """An array of this dtype and shape (None: any length), all finite and of sane magnitude.

    dtype None asks for float64 in which anything below infinity is allowed.
    """
    if array.dtype != (np.float64 if dtype is None else dtype):
        raise Rejected(f"{name} has the dtype {array.dtype}", code="type")
    if array.ndim != len(shape) or any(
        wanted not in (None, got) for wanted, got in zip(shape, array.shape, strict=True)
    ):
        raise Rejected(f"{name} has the shape {array.shape}, expected {shape}", code="shape")
    if dtype is np.float64:
        within_scale(array, name)
    elif dtype is None and not (array < np.inf).all():
        raise Rejected(f"{name} holds numbers that are not finite", code="not-finite")
    return array
