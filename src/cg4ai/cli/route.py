"""`cg4ai route`: its help; the options are those of `RouteSettings`."""

from __future__ import annotations

from cg4ai.apps.options import RunOptions
from cg4ai.cli.options import Given
from cg4ai.cli.run import run

EPILOG = """\b
Examples:
  cg4ai route abilene --demands 5 --paths 3 --out router
  cg4ai route abilene --demands 15 --guarantee certified --time-limit 900 --out proven
  cg4ai route --resume --out router
"""


def route(given: Given, options: RunOptions) -> int:
    """Train networks that split each demand of NETWORK over paths, for every demand vector.

    The largest demands span a box; in all of it no link may be overloaded. Prints the worst
    utilisation that a search found and the gap to optimal routing, with --baseline also those of
    plain networks. Exit code 0: no overload was found and the guarantee asked for was established;
    3: not so; 2: bad input; 1: no router came out, e.g. a time limit too short for each demand to
    have a member; 130: interrupted (continue with --resume --out DIR).
    """
    return run("route", given, options)
