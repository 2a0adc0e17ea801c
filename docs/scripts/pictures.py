"""The two pictures of the README, from a run of `cg4ai demo`: docs/pictures/*.svg, kept in git.

`make pictures` makes them anew, in half a minute; do so when the demonstration changes.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from cg4ai.cli.demo import ASKED
from cg4ai.clock import Deadline, Review
from cg4ai.colgen.loop import solve
from cg4ai.plots.drawing import BAD, INK, LINE, LOADS, PAPER, QUIET, THIRD
from cg4ai.plots.networks import KEPT, link_style
from cg4ai.records import Array
from cg4ai.routing.app import APPLICATION
from cg4ai.routing.evaluate import plain_router
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.network.layout import NetworkPicture, draw_network
from cg4ai.routing.prove.attack import timed_attack
from cg4ai.routing.prove.guarantee import write_shield_proof
from cg4ai.routing.settings import RouteSettings
from cg4ai.seeds import derive_seed
from cg4ai_checker import check
from cg4ai_checker.verify import Verdict

PICTURES = Path(__file__).parents[1] / "pictures"
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
PANEL = "#f5f6f8"
ACROSS, DOWN = 0.455, 0.62  # of the layout: taller than on a map, where links lie close together
CITIES = {
    "ATLAM5": "",  # beside Atlanta, where two names would cover each other
    "ATLAng": "Atlanta",
    "CHINng": "Chicago",
    "DNVRng": "Denver",
    "HSTNng": "Houston",
    "IPLSng": "Indianapolis",
    "KSCYng": "Kansas City",
    "LOSAng": "Los Angeles",
    "NYCMng": "New York",
    "SNVAng": "Sunnyvale",
    "STTLng": "Seattle",
    "WASHng": "Washington",
}

ASIDE = {  # names that would leave the picture, or lie on links
    "SNVAng": (4.0, 24.0, "middle"),
    "IPLSng": (8.0, 27.0, "start"),
    "WASHng": (11.0, 3.0, "start"),
}


@dataclass(frozen=True, eq=False)
class Demo:
    """The demonstration's network, link loads (A,) of both routers at the worst demands found for
    the plain one, and what the checker says of the other.
    """

    network: Instance
    plain: Array
    ruled: Array
    verdict: Verdict


def demonstrated(seed: int = 0) -> Demo:
    """Train as `cg4ai demo` does."""
    asked: dict[str, Any] = {**ASKED, "seed": seed}
    settings = RouteSettings(**asked)
    torch.set_num_threads(asked["threads"])
    prepared = APPLICATION.prepare(settings, None)
    task, made = APPLICATION.problem(prepared), prepared.instance
    result = solve(task.problem, task.settings)
    plain = plain_router(task.problem, settings, result, Deadline())
    attack_seed = derive_seed(seed, 0, "final attack") % 2**31
    found = timed_attack(made, plain, seed=attack_seed, review=Review())
    worst = found.demands[None]
    with tempfile.TemporaryDirectory() as folder:
        written = write_shield_proof(Path(folder), made, result.ensemble)
        verdict = check(Path(folder) / written["certificate"]["file"])
    loads = [
        made.compute_utilisation(worst, router.predict(worst))[0]
        for router in (plain, result.ensemble)
    ]
    return Demo(made, loads[0], loads[1], verdict)


# ---- SVG ----------------------------------------------------------------------------------------


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 14,
    colour: str = INK,
    bold: bool = False,
    anchor: str = "start",
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{weight} '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def picture(width: int, height: int, title: str, parts: list[str]) -> str:
    """A file on a ground of its own, so that it can be read on white and on black."""
    ground = (
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10" '
        f'fill="{PAPER}" stroke="{LINE}"/>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" font-family="{FONT}">',
            f"<title>{escape(title)}</title>",
            ground,
            *parts,
            "</svg>\n",
        ]
    )


# ---- the network --------------------------------------------------------------------------------


def link(ends: tuple[float, float, float, float], load: float) -> str:
    """Wider the fuller, in the colours of figures; above its capacity dashed and widest."""
    x1, y1, x2, y2 = ends
    above = load > KEPT
    colour = link_style(load)["color"]
    width = 9.0 if above else 1.2 + 5 * min(load, 1.0)
    dashes = ' stroke-dasharray="9 3.5"' if above else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width:.1f}"{dashes}/>'
    )


def beside(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float, float, float]:
    """The line from a to b, moved to its right: the way back lies on the other side."""
    length = ((b[0] - a[0]) ** 2 + (b[1] - a[1]) ** 2) ** 0.5 or 1.0
    dx, dy = -3.6 * (b[1] - a[1]) / length, 3.6 * (b[0] - a[0]) / length
    return a[0] + dx, a[1] + dy, b[0] + dx, b[1] + dy


def panel(
    made: Instance, layout: NetworkPicture, loads: Array, *, left: float, top: float
) -> list[str]:
    """The network with its links by utilisation, at a part of its layout's size."""
    at = {name: (left + ACROSS * x, top + DOWN * y) for name, (x, y) in layout.places.items()}
    order = loads.argsort(kind="stable")  # the fullest on top
    arcs = [made.arcs[number] for number in order]
    parts = [
        link(beside(at[a], at[b]), float(load))
        for (a, b), load in zip(arcs, loads[order], strict=True)
    ]
    for name, (x, y) in at.items():
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{PAPER}" stroke="{INK}" '
            'stroke-width="1.5"/>'
        )
        dx, dy, anchor = ASIDE.get(name, layout.labels[name])
        # a rim of paper keeps names readable where they lie on links
        parts.append(f'<g stroke="{PAPER}" stroke-width="3" paint-order="stroke">')
        parts.append(text(x + dx, y + dy, CITIES[name], size=12, colour=INK, anchor=anchor))
        parts.append("</g>")
    return parts


def legend(x: float, y: float) -> list[str]:
    parts = [text(x, y + 4, "share of a link's capacity in use", size=13, colour=QUIET)]
    x += 214
    for number, (low, high) in enumerate(pairwise((0.0, *LOADS))):
        if number == len(LOADS) // 2:
            x = 520  # no entry lies across the middle, where small screens part the picture
        parts.append(link((x, y, x + 30, y), (low + high) / 2))
        parts.append(text(x + 36, y + 4, f"to {high:.0%}", size=13))
        x += 88 if x < 500 else 112
    return [*parts, link((x, y, x + 30, y), 2.0), text(x + 36, y + 4, "overloaded", size=13)]


def network_picture(demo: Demo) -> str:
    layout = draw_network(replace(demo.network, all_arcs=None))  # without a second node at Atlanta
    worst, kept = float(demo.plain.max()), float(demo.ruled.max())
    source, target = (CITIES[node] for node in demo.network.arcs[int(demo.plain.argmax())])
    above = int((demo.plain > KEPT).sum())
    links = "1 link" if above == 1 else f"{above} links"
    top, height = 92, int(92 + DOWN * layout.size[1] + 58)
    parts = [
        text(28, 36, "A network trained without rules", size=18, bold=True),
        text(28, 59, f"{links} overloaded: {source} to {target} at {worst:.0%}", colour=BAD),
        text(28, 80, "at the worst demands that a search found", size=13, colour=QUIET),
        *panel(demo.network, layout, demo.plain, left=0, top=top),
        f'<line x1="500" y1="24" x2="500" y2="{height - 62}" stroke="{LINE}"/>',
        text(528, 36, "The same kind of network under a rule", size=18, bold=True),
        text(528, 59, f"fullest link {min(kept, 1.0):.0%} at the same demands", colour=THIRD),
        text(528, 80, "no demands up to the largest overload any", size=13, colour=QUIET),
        *panel(demo.network, layout, demo.ruled, left=505, top=top),
        *legend(28, height - 28),
    ]
    title = (
        f"Abilene at the same demands twice: without rules {links} overloaded, up to {worst:.0%}; "
        "under the rule none"
    )
    return picture(1000, height, title, parts)


# ---- the certificate ----------------------------------------------------------------------------


def certificate_picture(demo: Demo) -> str:
    """What the demonstration's file claims, and what not; the numbers are the checker's."""
    verdict = demo.verdict
    tightest = int(verdict.room.argmin())
    closest = " to ".join(
        CITIES[node]
        for node in verdict.claim.rule_names[tightest].removeprefix("link ").split("->")
    )
    dimensions = len(demo.network.demand_max)
    rows = [
        (
            "What holds",
            "no link carries more than its capacity",
            f"{len(verdict.bounds)} links, each a rule",
        ),
        (
            "Where",
            "at every vector of demands between zero and the largest",
            f"a box in {dimensions} dimensions, all of its float64 numbers",
        ),
        (
            "Of what",
            "of routers behind this shield: what would overload is moved to an anchor",
            f"sha256 {verdict.mixture_digest[:16]}…",
        ),
        (
            "How tight",
            f"the anchor fills {closest} most",
            f"at most {verdict.bounds[tightest]:.1%} of the capacity",
        ),
        (
            "By whom",
            "checked by code that shares nothing with the training",
            f"{verdict.leaves} cells, bounded anew",
        ),
    ]
    parts = [
        text(28, 40, "What a certificate says", size=18, bold=True),
        text(28, 63, "$ cg4ai check demo-run/certificate.cg4ai", colour=QUIET),
        f'<rect x="820" y="22" width="152" height="42" rx="21" fill="{THIRD}"/>',
        f'<path d="M842 43 l7 8 l13 -16" fill="none" stroke="{PAPER}" stroke-width="3.5"/>',
        text(908, 49, "Proven", size=18, colour=PAPER, bold=True, anchor="middle"),
    ]
    y = 84
    for number, (question, answer, detail) in enumerate(rows):
        if number % 2 == 0:
            parts.append(f'<rect x="16" y="{y}" width="968" height="44" rx="6" fill="{PANEL}"/>')
        parts.append(text(28, y + 27, question, size=15, bold=True))
        parts.append(text(150, y + 27, answer, size=15))
        parts.append(text(972, y + 27, detail, size=13, colour=QUIET, anchor="end"))
        y += 44
    parts.append(
        text(
            28,
            y + 30,
            "It says nothing about larger demands, links that fail or other networks; "
            "rounding of a prediction is aside.",
            colour=QUIET,
        )
    )
    return picture(
        1000,
        y + 50,
        "A certificate: what holds, where, of what, how tightly, and who checked it",
        parts,
    )


def main() -> None:
    demo = demonstrated()
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "network.svg").write_text(network_picture(demo), "utf-8")
    (PICTURES / "certificate.svg").write_text(certificate_picture(demo), "utf-8")
    print(f"written: {PICTURES}/network.svg, certificate.svg")


if __name__ == "__main__":
    main()
