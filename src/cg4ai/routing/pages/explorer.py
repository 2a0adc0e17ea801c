"""The page of a router: its network, demands, paths and what computes splits, as data for a page.

`pages/router.js` shows it and computes splits from the packed program; nothing is trained here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cg4ai import Ensemble
from cg4ai.apps import (
    array_data,
    describe_page,
    export_page_program,
    load_trained,
    render_explorer,
)
from cg4ai.colgen import generator
from cg4ai.data import Array
from cg4ai.guarantees import Strength
from cg4ai.report import SavedRun
from cg4ai.report import format_count as number_of
from cg4ai.routing.demands.measured import pick_evenly
from cg4ai.routing.demands.scaling import format_guarantee, format_multiple, format_notice
from cg4ai.routing.demands.sets import describe_set
from cg4ai.routing.network.description import Router
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.network.layout import NetworkPicture, draw_network
from cg4ai.routing.operate.answers import LowerBound
from cg4ai.routing.pages.judged_traffic import (
    OPTIMUM,
    OURS,
    STATIC,
    get_mlu_over_time,
    unpack_times,
)
from cg4ai.routing.train.anchors import anchor, worst_vectors
from cg4ai.routing.train.effort import SCENARIOS, count_affordable
from cg4ai.routing.train.optimal import arc_prices
from cg4ai.routing.train.utilisation import Utilisation
from cg4ai.rules import Polytope

PAGE_BYTES = 4_800_000  # of a page that is not refused as too large
RESERVED = 400_000  # bytes of such a page for its scripts, nodes and links
LEFT_OUT = "This router had no room in the page"
ROW_BYTES = 120  # of the rest that a page has of a matrix: its time and three MLUs
VOLUME_BYTES = 6  # of one volume of a matrix: 32 bits in base64, rounded up
SAMPLES = 300  # demand vectors of the best static split
SCREENED, CLIMBED, STEP = 4096, 40, 0.25  # vectors looked at for each link, steps from the worst
WORDS = {
    Strength.SHIELDED: (
        "good",
        "No link can be overloaded at any demands of the set: a shield moves splits that would "
        "overload one towards constant splits that fit.",
    ),
    Strength.CERTIFIED: (
        "good",
        "No link is overloaded at any demands of the set. A certificate proves it; verify it with "
        "cg4ai check.",
    ),
    Strength.ATTACKED: (
        "warn",
        "A search found no overload in the set; that is not proven.",
    ),
    Strength.VIOLATED: ("bad", "A search found demands of the set that overload a link."),
}
NOTHING = ("warn", "Nothing is known about overloads.")


def make_explorer_page(
    router: Router, ensemble: Ensemble, folder: Path, summary: Mapping[str, Any]
) -> str:
    """The page, as one HTML file, with the routers of failures that were studied."""
    made, picture = router.instance, draw_network(router.instance)
    strength = summary.get("strength") or strength_of(ensemble)
    first = {
        "label": "no link",
        "ratio": summary.get("ratio"),
        **make_router_entry(made, ensemble, router.bound, strength=strength, picture=picture),
    }
    used = {node for arc in made.arcs for node in arc}
    data = {
        "title": f"Router of {made.name}",
        "about": " ".join(
            [
                *format_notice(made.capacity_factor),
                f"{number_of(len(made.demand_max), 'demand')} over up to "
                f"{number_of(max(len(block) for block in made.blocks), 'path')} each, "
                f"{number_of(len(made.arcs), 'link')} in use. The set: "
                f"{describe_set(made.region)}.",
                *(f"{note[0].upper()}{note[1:]}." for note in made.notes),
            ]
        ),
        # of what utilisations are, and what that is of the real capacities; null: not known
        "counted": format_multiple(made.capacity_factor),
        "factor": made.capacity_factor,
        "foot": describe_page(folder.name),
        "size": picture.size,
        "nodes": [
            {
                "name": name,
                "at": picture.places[name],
                "label": picture.labels[name],
                "unused": name not in used,
            }
            for name in picture.nodes
        ],
        "arcs": [
            {
                "from": picture.numbers_by_name[source],
                "to": picture.numbers_by_name[target],
                "capacity": capacity,
            }
            for (source, target), capacity in zip(made.arcs, made.capacity.tolist(), strict=True)
        ],
        "unused": [
            [picture.numbers_by_name[one], picture.numbers_by_name[other]]
            for one, other in picture.unused
        ],
        "demands": _demands(made, picture),
        "set": _set(made),
        "routers": [first, *_failures(folder, made, picture, first)],
        "run": folder.name,
    }
    page = render_explorer("router", data)
    traffic = _stored_traffic(folder, summary, PAGE_BYTES - len(page.encode()))
    return page if traffic is None else render_explorer("router", {**data, "traffic": traffic})


def _failures(
    folder: Path, made: Instance, picture: NetworkPicture, first: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """One entry for each failure that was studied for this router.

    Routers, about as large as the `first`, are left out where the page would be refused for them.
    """
    from cg4ai.routing.operate.failure_study import FOLDER, read_known_outcomes

    if not (folder / FOLDER).is_dir():
        return
    numbers = {arc: number for number, arc in enumerate(made.arcs)}
    size = _count_bytes(first)
    room = PAGE_BYTES - RESERVED - size
    for row in read_known_outcomes(folder):
        down = {frozenset(link) for link in row["links"]}
        lost = [number for arc, number in numbers.items() if frozenset(arc) in down]
        told = {"label": row["failure"], "failed": lost}
        if row["outcome"] == "unaffected":
            yield {**told, "as": 0}
        elif row["outcome"] == "shielded" and room < size:
            where = folder.name + f"/{FOLDER}/{row['folder']}"
            yield {**told, "words": f"{LEFT_OUT}: cg4ai explore {where} makes one of it."}
        elif row["outcome"] == "shielded":
            ensemble, router = load_trained(folder / FOLDER / row["folder"])
            assert isinstance(router, Router)
            own = make_router_entry(
                router.instance,
                ensemble,
                router.bound,
                strength=Strength.SHIELDED,
                picture=picture,
                arcs=numbers,
            )
            size = _count_bytes(own)  # which the next one will need, too
            room -= size
            yield {**told, **own}
        else:
            yield {**told, "words": f"No router for this failure: {row['text']}."}


def _count_bytes(entry: Mapping[str, Any]) -> int:
    return len(json.dumps(entry, separators=(",", ":")))


def make_router_entry(
    made: Instance,
    ensemble: Ensemble,
    bound: LowerBound | None,
    *,
    strength: str | None,
    picture: NetworkPicture,
    arcs: dict[tuple[str, str], int] | None = None,
) -> dict[str, Any]:
    """One router: its paths as numbers of arcs, its program, prices, static split, worst cases.

    `arcs`: the numbers of arcs in the page, where they are not its own.
    """
    numbers = arcs or {arc: number for number, arc in enumerate(made.arcs)}
    program = export_page_program(ensemble)
    count = count_affordable(SAMPLES, SCENARIOS, len(made.path_demand))
    tone, words = WORDS.get(Strength(strength), NOTHING) if strength else NOTHING
    if bound is None:
        bound = LowerBound(made, arc_prices(made, made.sample(count, 1)))
    vectors, loads = worst_per_link(made, ensemble)
    order = [numbers[arc] for arc in made.arcs]
    whole = len(numbers)
    own_vectors, own_loads = np.zeros((whole, made.region.size)), np.zeros(whole)
    own_vectors[order], own_loads[order] = vectors, loads
    constant = np.zeros(whole)
    constant[order] = worst_vectors(made, made.robust.split).loads
    return {
        "paths": [
            {
                "demand": int(demand),
                "nodes": [picture.numbers_by_name[node] for node in path],
                "arcs": [numbers[arc] for arc in pairwise(path)],
            }
            for demand, path in zip(made.path_demand, made.paths, strict=True)
        ],
        "program": program,
        "prices": array_data(bound.prices),
        "static": anchor(made, made.sample(count, 0)).tolist(),
        # of each link at its worst vector of the set, under the constant split of least worst load
        "constant": constant.tolist(),
        "worst": {"vectors": array_data(own_vectors), "loads": own_loads.tolist()},
        "shielded": strength == Strength.SHIELDED,
        "tone": tone,
        "words": words if tone == "bad" else format_guarantee(words, made.capacity_factor),
    }


def worst_per_link(made: Instance, ensemble: Ensemble) -> tuple[Array, Array]:
    """For each link the demands (A, D) that load it most among those tried, and how much (A,).

    Random vectors of the set, its corners, and those at which constant splits load the link most;
    from the worst of them by the slope, where the router has one.
    """
    region, functional = made.region, Utilisation(made)
    made_by = generator(0)
    even = np.concatenate([np.full(len(block), 1 / len(block)) for block in made.blocks])
    tried = torch.cat(
        [
            region.sample(SCREENED, made_by),
            region.extremes(SCREENED // 4, made_by),
            torch.as_tensor(np.asarray(region.bounds()[1]))[None],
            torch.as_tensor(worst_vectors(made, even).vectors),
        ]
    )
    tried = tried[torch.as_tensor(region.covers(tried.numpy()))]
    with torch.no_grad():
        found = functional.values(tried, ensemble.outputs(tried))  # (n, A)
    best, at = found.max(0)
    points = tried[at].clone()
    if ensemble.differentiable:
        points, best = _climbed(made, ensemble, points, best)
    # in 32 bits, which are half the bytes of a page, where that leaves a vector in the set
    near = points.numpy().astype(np.float32)
    near = np.where(near > points.numpy(), np.nextafter(near, np.float32(0)), near)
    rounded = near.astype(np.float64)
    vectors = np.where(region.covers(rounded)[:, None], rounded, points.numpy())
    with torch.no_grad():
        x = torch.as_tensor(vectors)
        loads = functional.values(x, ensemble.outputs(x)).diagonal().numpy()
    return vectors, loads


def _climbed(
    made: Instance, ensemble: Ensemble, points: torch.Tensor, best: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Steps along the slope of each link's own load, halved where they do not help."""
    region, functional = made.region, Utilisation(made)
    lower, upper = (torch.as_tensor(end) for end in region.bounds())
    step = STEP * torch.ones(len(points), 1, dtype=torch.float64)
    for _ in range(CLIMBED):
        x = points.clone().requires_grad_()
        loads = functional.values(x, ensemble.outputs(x)).diagonal()
        (slope,) = torch.autograd.grad(loads.sum(), x)
        with torch.no_grad():
            way = slope.sign() * (upper - lower)
            moved = region.project(points + step * way)
            now = functional.values(moved, ensemble.outputs(moved)).diagonal()
            inside = torch.as_tensor(region.covers(moved.numpy()))
            better = inside & (now > best)
            points = torch.where(better[:, None], moved, points)
            best = torch.where(better, now, best)
            step = torch.where(better[:, None], step, step / 2)
    return points, best


def _demands(made: Instance, picture: NetworkPicture) -> list[dict[str, Any]]:
    lower, upper = made.region.bounds()
    middle = made.region.middle if isinstance(made.region, Polytope) else (lower + upper) / 2
    rows = zip(made.demand_names, made.ends, lower, upper, np.asarray(middle), strict=True)
    return [
        {
            "name": name,
            "ends": [picture.numbers_by_name[node] for node in ends],
            "least": float(low),
            "most": float(high),
            "usual": float(mid),
        }
        for name, ends, low, high, mid in rows
    ]


def _stored_traffic(folder: Path, summary: Mapping[str, Any], room: int) -> dict[str, Any] | None:
    """The later matrices that the run kept, and the MLUs that it measured there; None without.

    `room`: bytes that they may take; as many are left out, evenly over time.
    """
    if "traffic" not in summary:
        return None
    arrays = SavedRun(folder).arrays
    series = get_mlu_over_time(arrays)
    if "later_vectors" not in arrays or OURS not in series:
        return None  # of a run that kept none
    vectors = arrays["later_vectors"]
    kept = pick_evenly(len(vectors), max(0, room // (VOLUME_BYTES * vectors.shape[1] + ROW_BYTES)))
    if len(kept) < 2:
        return {"about": "The page is too large to hold the later matrices.", "times": []}
    shown = arrays["later_shown"][kept]
    times = unpack_times(arrays) or [str(number) for number in range(len(series[OURS]))]
    count, judged = len(shown), len(series[OURS])
    which = f"All {count:,}" if count == judged else f"{count:,} of {judged:,}, evenly over time,"
    fixed = series.get(STATIC)
    return {
        "about": f"{which} later matrices at which the run was measured, with the MLUs that it "
        "stored.",
        "times": [times[number] for number in shown],
        "vectors": array_data(vectors[kept]),
        "inside": (arrays["later_inside"][shown] > 0).tolist(),
        "ours": series[OURS][shown].tolist(),
        "optimum": series[OPTIMUM][shown].tolist(),
        "fixed": None if fixed is None else fixed[shown].tolist(),
    }


def _set(made: Instance) -> dict[str, Any]:
    """Limits on sums of demands, beside those of each."""
    region = made.region
    if not isinstance(region, Polytope):
        return {}
    return {"rows": array_data(region.matrix), "ends": np.asarray(region.limit).tolist()}


def strength_of(ensemble: Ensemble) -> str | None:
    """The strongest that is recorded of the capacities."""
    found = [str(claim.get("strength")) for claim in ensemble.about.get("guarantees", [])]
    order = (Strength.CERTIFIED, Strength.SHIELDED, Strength.ATTACKED)
    return next((str(one) for one in order if one in found), None)
