"""Figures of runs and models, each drawn on a matplotlib axis, which may be given.

matplotlib is the extra `plots`, and is imported when the first figure is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.plots.decisions import plot_frontier
    from cg4ai.plots.distributions import plot_histogram, plot_ranges
    from cg4ai.plots.models import plot_calibration, plot_confusion, plot_images, plot_predictions
    from cg4ai.plots.networks import (
        places_of,
        plot_found,
        plot_network,
        plot_over_time,
        plot_utilisation,
    )
    from cg4ai.plots.rules import plot_slack
    from cg4ai.plots.training import plot_convergence, plot_time, plot_weights
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.plots.decisions": ["plot_frontier"],
            "cg4ai.plots.distributions": ["plot_histogram", "plot_ranges"],
            "cg4ai.plots.models": [
                "plot_calibration",
                "plot_confusion",
                "plot_images",
                "plot_predictions",
            ],
            "cg4ai.plots.networks": [
                "places_of",
                "plot_found",
                "plot_network",
                "plot_over_time",
                "plot_utilisation",
            ],
            "cg4ai.plots.rules": ["plot_slack"],
            "cg4ai.plots.training": ["plot_convergence", "plot_time", "plot_weights"],
        },
    )

__all__ = [
    "places_of",
    "plot_calibration",
    "plot_confusion",
    "plot_convergence",
    "plot_found",
    "plot_frontier",
    "plot_histogram",
    "plot_images",
    "plot_network",
    "plot_over_time",
    "plot_predictions",
    "plot_ranges",
    "plot_slack",
    "plot_time",
    "plot_utilisation",
    "plot_weights",
]
