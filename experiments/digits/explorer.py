"""The page of a digit classifier: an image to draw, what it is taken for, the demand of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cg4ai.apps.explanations import ListedSlack, listed_slack
from cg4ai.apps.explorer import describe_page, listed_data, model_page
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.rules import Margin, Probability
from experiments.digits.evaluate import TOLERANCE
from experiments.digits.report import guarantee

SIDE, CLASSES = 28, 10
SHOWN = 20  # required images that travel with a page


def explorer(
    ensemble: Ensemble,
    name: str,
    summary: Mapping[str, Any],
    *,
    scores: str,
    required: Margin | Probability | None,
    missing: str = "",
) -> str:
    """The page, as one HTML file; `required`: the demand on images, None where none is at hand."""
    rules = [_demand(ensemble, summary, required)] if summary.get("rows") else []
    labels = [label for one in rules if "listed" in one for label in one["listed"]["labels"]]
    return model_page(
        ensemble,
        (),
        {
            "title": "Digits, recognised under rules",
            "about": f"{len(ensemble)} small networks in the mixture; an image is {SIDE} x {SIDE} "
            "pixels between 0 and 1.",
            "foot": describe_page(name) + missing,
            "form": {"kind": "pixels", "side": SIDE},
            "outputs": {
                "kind": "classes",
                "names": [str(label) for label in range(CLASSES)],
                "target": "digit",
                "scores": scores,
            },
            "rules": rules,
            "examples": [
                {"label": label, "rule": 0, "place": place} for place, label in enumerate(labels)
            ],
        },
    )


def _demand(
    ensemble: Ensemble, summary: Mapping[str, Any], required: Margin | Probability | None
) -> dict[str, Any]:
    """The one rule, with its slack at the first of its images."""
    kept = summary.get("rows_satisfied") == summary.get("rows")
    entry: dict[str, Any] = {
        "name": "required images",
        "strength": "audited" if kept else "violated",
        "statement": guarantee(summary),
        "tolerance": TOLERANCE,
        "at": None,
    }
    known = None if required is None else listed_slack(ensemble, required)
    if required is None or known is None:
        return entry | {"silent": "Its images are not in this page: no slack is shown."}
    if len(known.inputs) > SHOWN:
        entry["silent"] = (
            f"This image is none of the first {SHOWN} that the rule lists; the other "
            f"{len(known.inputs) - SHOWN:,} are not in this page."
        )
    shown = ListedSlack(known.inputs[:SHOWN], known.slack[:SHOWN])
    labels = [
        f"required image {number}, to be {int(label)}"
        for number, label in enumerate(required.labels[:SHOWN])
    ]
    return entry | {"listed": listed_data(shown, labels)}
