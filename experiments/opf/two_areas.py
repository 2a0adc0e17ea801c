"""`python -m experiments.opf.two_areas FILE.m`: an invented grid of two areas, as a MATPOWER case.

A cheap and a dear area, each a ring with chords, joined by two lines. Every line is rated a little
above its worst flow over the box of loads where all generators share the load by their size, so
that such a rule keeps all limits, and is dear; what is cheap is held back by the lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from experiments.command import Seed, command
from experiments.opf.dispatch import Dispatch
from experiments.opf.grid import build_grid
from experiments.opf.matpower import Case
from experiments.opf.participation import ParticipationRule, compute_worst_flows

BASE = 100.0  # MW
CHORDS = 0.4  # for each bus
PRICES = ((10.0, 20.0), (30.0, 50.0))  # money per MWh, least and most, of each area
REACTANCE = (0.02, 0.1)
LARGE = 1e6  # MW: a rate while the flows are sought
TABLES = ("bus", "gen", "branch", "gencost")


def invent_case(buses: int, *, spread: float, headroom: float, seed: int) -> Case:
    """In MW; loads may deviate by the share `spread`, rates are `1 + headroom` worst flows."""
    if buses < 8 or buses % 2 or not 0 < spread < 1 or headroom <= 0:
        raise InvalidInput(
            "an even number of 8 buses or more is needed, a spread between 0 and 1 and a positive "
            f"headroom, got {buses}, {spread:g} and {headroom:g}",
            code="range",
        )
    rng, half = np.random.default_rng(seed), buses // 2
    bus = np.zeros((buses, 13))
    bus[:, 0], bus[:, 1] = np.arange(buses) + 1, 1
    bus[:, 2] = rng.uniform(20, 100, buses)
    pairs = set[tuple[int, int]]()
    for first in (0, half):
        ring = [(first + at, first + (at + 1) % half) for at in range(half)]
        chords = rng.integers(first, first + half, (int(CHORDS * half), 2))
        pairs |= {(min(a, b), max(a, b)) for a, b in [*ring, *chords.tolist()] if a != b}
    pairs |= {(0, half), (half // 2, half + half // 2)}
    branch = np.zeros((len(pairs), 13))
    branch[:, :2] = np.array(sorted(pairs)) + 1
    branch[:, 3], branch[:, 5], branch[:, 10] = rng.uniform(*REACTANCE, len(pairs)), LARGE, 1
    at = np.sort(rng.permutation(buses)[: buses // 4 + 2])
    gen, costs = np.zeros((len(at), 10)), np.zeros((len(at), 3))
    size = rng.uniform(1, 2, len(at))
    gen[:, 0], gen[:, 7] = at + 1, 1
    gen[:, 8] = size / size.sum() * bus[:, 2].sum() * (1 + 3 * spread) * 1.5
    costs[:, 1] = [rng.uniform(*PRICES[int(one >= half)]) for one in at]

    grid = build_grid(Case("free", BASE, bus, gen, branch, costs))
    share = gen[:, 8] / gen[:, 8].sum()
    worst = compute_worst_flows(
        Dispatch(grid, spread), ParticipationRule(share * grid.loads.sum(), share)
    )
    branch[:, 5] = (1 + headroom) * worst
    return Case("two_areas", BASE, bus, gen, branch, costs)


def change_unit(case: Case, unit: float) -> Case:
    """The same grid with powers in units of `unit` MW: the same dispatches, in other numbers."""
    bus, gen, branch, costs = (
        np.array(one) for one in (case.bus, case.gen, case.branch, case.costs)
    )
    bus[:, [2, 4]] /= unit
    gen[:, [8, 9]] /= unit
    branch[:, 5] /= unit
    costs[:, 0] *= unit**2
    costs[:, 1] *= unit
    return Case(case.name, case.base / unit, bus, gen, branch, costs)


def format_case(case: Case) -> str:
    """The text of a MATPOWER file of version 2."""
    costs = np.column_stack([np.tile([2.0, 0.0, 0.0, 3.0], (len(case.costs), 1)), case.costs])
    tables = (case.bus, case.gen, case.branch, costs)
    parts = [f"function mpc = {case.name}\nmpc.version = '2';\nmpc.baseMVA = {case.base!r};\n"]
    parts += [f"mpc.{name} = [\n{_rows(one)}];\n" for name, one in zip(TABLES, tables, strict=True)]
    return "".join(parts)


def _rows(table: Array) -> str:
    return "".join(" " + " ".join(f"{value:.17g}" for value in row) + ";\n" for row in table)


def work(
    file: Annotated[Path, typer.Argument(metavar="FILE.m", help="Where the case is written.")],
    *,
    buses: Annotated[int, typer.Option(help="Half of them in each area.")] = 40,
    spread: Annotated[float, typer.Option(help="Share by which each load may deviate.")] = 0.1,
    headroom: Annotated[
        float, typer.Option(help="Share by which rates are above what the dear rule needs.")
    ] = 0.1,
    unit: Annotated[float, typer.Option(help="MW in one unit of power; 100: per unit.")] = 1.0,
    seed: Seed = 0,
) -> None:
    """Invent a grid of two areas and write it as a MATPOWER case."""
    case = invent_case(buses, spread=spread, headroom=headroom, seed=seed)
    try:
        file.write_text(format_case(change_unit(case, unit)))
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be written: {error.strerror}", code="bad-file"
        ) from error


if __name__ == "__main__":
    raise SystemExit(command(work, "python -m experiments.opf.two_areas", "areas.m --buses 40"))
