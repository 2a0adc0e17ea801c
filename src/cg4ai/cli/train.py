"""`cg4ai train`: its help; the options are those of `TrainSettings`."""

from __future__ import annotations

from cg4ai.apps.options import RunOptions
from cg4ai.cli.options import Given
from cg4ai.cli.run import run

EPILOG = """\b
Example:
  cg4ai train patients.csv --target diagnosis --rules rules.json --out run
"""


def train(given: Given, options: RunOptions) -> int:
    """Train a mixture of models on DATA.csv that keeps the rules of RULES.json.

    Prints what is guaranteed and how that was established, and the score beside a plain model's.
    Exit code 0: all requirements are met; 3: some are not; 2: bad input; 130: interrupted (continue
    with --resume --out DIR).
    """
    return run("train", given, options)
