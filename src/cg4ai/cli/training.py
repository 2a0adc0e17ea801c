"""`cg4ai train` and `route`: their help; the options are those of their settings."""

from __future__ import annotations

import math

from cg4ai import clock
from cg4ai.cli.options import Given
from cg4ai.errors import InvalidInput
from cg4ai.settings import RunOptions

KEPT, NOT_KEPT = 0, 3
TRAIN_EXAMPLE = """\b
Example:
  cg4ai train patients.csv --target diagnosis --rules rules.json --out run
"""
ROUTE_EXAMPLES = """\b
Examples:
  cg4ai route abilene --demands 5 --paths 3 --out router
  cg4ai route abilene --demands 15 --guarantee certified --time-limit 900 --out proven
  cg4ai route polska --load 0.6 --failures single --out router
  cg4ai route abilene --agent-scope source --out agents
  cg4ai route --resume --out router
"""


def train(given: Given, options: RunOptions) -> int:
    """Train a mixture of models on DATA.csv that keeps the rules of RULES.json.

    Prints what is guaranteed and how that was established, and the score beside a plain model's.
    Exit code 0: all requirements are met; 3: some are not; 2: bad input; 130: interrupted (continue
    with --resume --out DIR).
    """
    return train_application("train", given, options)


def route(given: Given, options: RunOptions) -> int:
    """Train networks that split each demand of NETWORK over paths, for every demand vector.

    The largest demands span a box; at no vector of it can a link be overloaded. Prints how that is
    established and the gap to optimal routing, with --baseline also what plain networks do. Exit
    code 0: no overload was found and the guarantee asked for was established;
    3: not so; 2: bad input; 1: no router came out, e.g. a time limit too short for each demand to
    have a member; 130: interrupted (continue with --resume --out DIR). With --failures the router
    is then made ready for failures of links, as cg4ai failures does.
    """
    if given.get("failures") is not None and options.out is None:
        raise InvalidInput("--failures makes routers of their own: say where to with --out DIR")
    started = clock.wall()
    return _failures(train_application("route", given, options), given, options, started)


def _failures(code: int, given: Given, options: RunOptions, started: float) -> int:
    """Study the failures that a finished run was asked for; the exit code of both."""
    if options.out is None or code not in (KEPT, NOT_KEPT):
        return code
    from cg4ai.runs.folder import Run

    stored = Run.open(options.out, read_only=True).settings
    which = given.get("failures", stored.get("failures"))
    if which is None:
        return code
    from cg4ai.cli.failures import run
    from cg4ai.routing.operate.rerouting import Effort

    effort = Effort(seed=stored["seed"], device=stored["device"])
    if not options.json:
        print()
    limit = given.get("time_limit_s", math.inf)
    found = run(
        options.out,
        which,
        effort,
        jobs=None,
        until=started + float(limit),
        quiet=options.quiet,
        json=options.json,
    )
    return max(code, found)


def train_application(name: str, given: Given, options: RunOptions) -> int:
    """Train by the application that is registered by this name, showing how it goes on.

    A program of an application outside the package makes its own command of it.
    """
    started = clock.now()  # what is imported now takes seconds of a time limit
    from cg4ai.apps.folders import find_application
    from cg4ai.apps.runner import execute_command
    from cg4ai.cli.progress import make_progress

    mode = "json" if options.json else "quiet" if options.quiet else "auto"
    with make_progress(mode) as screen:
        return execute_command(find_application(name), given, options, screen, started=started)
