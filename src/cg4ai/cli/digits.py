"""`cg4ai digits`: its help; the options are those of `DigitsSettings`."""

from __future__ import annotations

from cg4ai.apps.options import RunOptions
from cg4ai.cli.options import Given
from cg4ai.cli.run import run

EPILOG = """\b
Example:
  cg4ai digits hard --n 100 --rule margin --augment --out classifier
"""


def digits(given: Given, options: RunOptions) -> int:
    """Train a mixture of small networks on images of digits, with rules on listed images.

    Scenarios: plain (no rules), hard (listed images must be right), robust (attacked images too),
    correct (what the base member gets wrong), relabel (a 3 becomes a 2). Exit code 0: every
    required image is answered as demanded; 3: some are not; 2: bad input; 130: interrupted
    (continue with --resume --out DIR).
    """
    return run("digits", given, options)
