"""What figures of all experiments share: panels without a window, saved arrays, PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cg4ai.apps.folders import ARRAYS
from cg4ai.errors import RunFolderError
from cg4ai.extras import import_optional
from cg4ai.plots.drawing import render_png
from cg4ai.runs import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_panels(
    columns: int, *, rows: int = 1, height: float = 4.2, widths: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure of rows x columns panels, numbered row by row."""
    figure: Figure = import_optional("matplotlib.figure").Figure(
        figsize=(5.5 * columns, height * rows), layout="constrained"
    )
    # draws to files; no window system is needed
    import_optional("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False, width_ratios=widths).flat)


def saved_arrays(run: Path) -> dict[str, NDArray[Any]]:
    if not (run / ARRAYS).exists():
        raise RunFolderError(
            f"{run} holds no {ARRAYS}: the run has not ended; resume it, or run it again (--force)"
        )
    return files.read_arrays(run / ARRAYS)


def write(figure: Figure, target: Path) -> Path:
    """Written whole or not at all, since other processes may draw the same figure."""
    files.write_bytes(target, render_png(figure))
    return target
