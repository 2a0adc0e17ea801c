"""`cg4ai train` and `route`: their help; the options are those of their settings."""

from __future__ import annotations

import math

from cg4ai import clock
from cg4ai.cli.options import Given
from cg4ai.errors import InvalidInput
from cg4ai.settings import RunOptions

KEPT, NOT_KEPT = 0, 3


def train(given: Given, options: RunOptions) -> int:
    """Train a model on DATA.csv that keeps the rules of RULES.json.

    Prints for every rule whether it holds, where, and how that was established. Also prints the
    score with and without rules. Exit code 0: no rule is violated; 3: a rule is violated; 2: bad
    input; 130: interrupted (continue with --resume --out DIR).
    """
    return train_application("train", given, options)


def route(given: Given, options: RunOptions) -> int:
    """Train a router that splits each demand of NETWORK over paths and overloads no link.

    The guarantee covers every demand vector from zero to the largest demands, or the smaller set
    that the options describe. Prints the guarantee, how it was established, and the distance from
    optimal routing. --baseline also trains plain networks to compare. --failures also studies
    failures of links, like cg4ai failures. Exit code 0: the guarantee holds and no overload was
    found; 3: an overload was found, or the guarantee was not established; 2: bad input; 1: no
    router was found, for example within a short time limit; 130: interrupted (continue with
    --resume --out DIR).
    """
    if given.get("failures") is not None and options.out is None:
        raise InvalidInput(
            "--failures writes a router for each failure: name a folder with --out DIR",
            code="missing-argument",
        )
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
