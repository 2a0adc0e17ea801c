"""The page of a digit classifier: an image to draw, what it is taken for, the demand of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cg4ai.apps.digits.report import guarantee
from cg4ai.apps.exploring import FOOT, model_page
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.pages.program import array_data
from cg4ai.records import Array

SIDE, CLASSES = 28, 10


def explorer(
    ensemble: Ensemble,
    name: str,
    summary: Mapping[str, Any],
    *,
    scores: str,
    required: Sequence[tuple[str, Array]],
) -> str:
    """The page, as one HTML file; `required`: some of the images that must come out as demanded."""
    kept = summary.get("rows_satisfied") == summary.get("rows")
    rules = []
    if summary.get("rows"):
        rules.append(
            {
                "name": "required images",
                "strength": "audited" if kept else "violated",
                "statement": guarantee(summary),
                "at": None,
                "silent": "It is about the required images alone; examples are some of them.",
            }
        )
    return model_page(
        ensemble,
        (),
        {
            "title": "Digits, recognised under rules",
            "about": f"{len(ensemble)} small networks in the mixture; an image is {SIDE} x {SIDE} "
            "pixels between 0 and 1.",
            "foot": FOOT.format(name=name),
            "form": {"kind": "pixels", "side": SIDE},
            "outputs": {
                "kind": "classes",
                "names": [str(label) for label in range(CLASSES)],
                "target": "digit",
                "scores": scores,
            },
            "rules": rules,
            "examples": [
                {"label": label, "inputs": array_data(image)} for label, image in required
            ],
        },
    )
