"""The rules that layers take, and how many outputs they speak of."""

from __future__ import annotations

from collections.abc import Sequence

from cg4ai.errors import InvalidInput
from cg4ai.rules.concave import Concave
from cg4ai.rules.equality import Equality
from cg4ai.rules.labels import Margin, Probability
from cg4ai.rules.linear import Linear
from cg4ai.rules.output_sets import OutputRule
from cg4ai.rules.quadratic import Quadratic
from cg4ai.rules.requirement import RequirementDefaults

PlacedRule = Linear | Quadratic | Concave | Probability | Margin | Equality
LayerRule = PlacedRule | OutputRule

# what a layer is given: a list of several kinds of rules has no closer type
Given = RequirementDefaults | Sequence[RequirementDefaults]
KINDS = (Linear, Quadratic, Concave, Probability, Margin, Equality, OutputRule)


def check_rules(given: Given, layer: str) -> list[LayerRule]:
    """One rule or several as a list; InvalidInput for those that no layer keeps."""
    several = list(given) if isinstance(given, Sequence) else [given]
    found: list[LayerRule] = [one for one in several if isinstance(one, KINDS)]
    if len(found) < len(several):
        wrong = next(one for one in several if not isinstance(one, KINDS))
        raise InvalidInput(
            f"a {layer} takes {', '.join(kind.__name__ for kind in KINDS[:-1])}, Range, Ordered "
            f"and SumTo, got {type(wrong).__name__}; rules about several inputs at once are for "
            "training under them (cg4ai.solve)",
            code="type",
        )
    return found


def find_width(rules: Sequence[LayerRule], output_size: int | None) -> int:
    """How many outputs the rules are about."""
    stated = [output_size, *(one.stated_width for one in rules)]
    sizes = sorted({size for size in stated if size is not None})
    if len(sizes) == 1:
        return sizes[0]
    if not sizes:
        raise InvalidInput(
            "these rules do not say how many outputs there are; give output_size=",
            code="missing-argument",
        )
    raise InvalidInput(f"the rules are about {sizes} outputs; they must agree", code="shape")
