"""Colours of figures: those of the pages' light theme, each by the name that pages have for it.

A page swaps them for its variables, so that figures follow the reader's theme; anywhere else they
are what they say.
"""

from __future__ import annotations

PAPER, INK, QUIET, LINE = "#ffffff", "#1a1d21", "#555c66", "#d4d8de"
FIRST, SECOND, THIRD, FOURTH = "#0b5fa5", "#b5520b", "#08704f", "#8a3a83"
SERIES = (FIRST, SECOND, THIRD, FOURTH)
BAD = "#a92323"
# for what grows: each darker than the one before (on dark pages brighter), which is what people
# see who tell no colours apart
STEPS = ("#a3b3c1", "#79a3c4", "#4a89bb", "#1f62a0", "#0b2e63")

VARIABLES = {
    PAPER: "--paper",
    INK: "--ink",
    QUIET: "--quiet",
    LINE: "--line",
    FIRST: "--first",
    SECOND: "--second",
    THIRD: "--third",
    FOURTH: "--fourth",
    BAD: "--bad",
    **{colour: f"--step-{number}" for number, colour in enumerate(STEPS, start=1)},
}
