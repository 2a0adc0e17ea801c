"""`python -m experiments.paths`: what generated paths are worth, beside the shortest ones.

Nothing is trained: the best routing over the chosen paths is compared with the optimum over all
paths of the network, at demand vectors that the choice of paths has not seen.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from cg4ai.clock import Deadline
from cg4ai.report.tables import format_markdown
from cg4ai.routing import CONFIGURATIONS, instance
from cg4ai.routing.demands.sets import demand_box
from cg4ai.routing.network.instance import network_of
from cg4ai.routing.network.optimum import compare_with_network
from cg4ai.routing.network.path_choice import PathChoice, choose_paths
from cg4ai.routing.network.path_search import Graph
from cg4ai.routing.network.readers import read_demands
from experiments.command import KEPT, Folder, command, say

USUAL = tuple(dict.fromkeys(network for network, _, _ in CONFIGURATIONS))
JUDGED_BY = 987_654  # seed of the vectors that judge
CHOICES: tuple[PathChoice, ...] = ("shortest", "generated")
ALL = "all"


def paths(
    networks: Annotated[
        list[str] | None, typer.Argument(metavar="[NETWORK ...]", help="Which; or the paper's 12.")
    ] = None,
    *,
    out: Folder = Path("paths"),
    demands: Annotated[list[str] | None, typer.Option(help="How many; 15 and all.")] = None,
    number: Annotated[
        list[int] | None, typer.Option("--paths", help="For each demand; 3 and 5.")
    ] = None,
    vectors: Annotated[
        int, typer.Option(help="At 15 demands; fewer at more; 0: only choose paths of all demands.")
    ] = 400,
    choice: Annotated[
        PathChoice, typer.Option("--path-choice", help="With --vectors 0: which paths.")
    ] = "generated",
    demand_file: Annotated[
        Path | None, typer.Option(help="With --vectors 0: REPETITA's .demands of the network.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the vectors that judge.")] = JUDGED_BY,
    hose: Annotated[float | None, typer.Option(help="As in cg4ai route.")] = None,
    budget: Annotated[float | None, typer.Option(help="As in cg4ai route.")] = None,
) -> None:
    """Measure; DIR/paths.jsonl has a line for each case, paths.md the table.

    What is in DIR already is not measured again.
    """
    if vectors == 0:
        for network in networks or USUAL:
            print(json.dumps(measure_choice(network, (number or [3])[0], choice, demand_file)))
        raise typer.Exit(KEPT)
    out.mkdir(parents=True, exist_ok=True)
    file = out / "paths.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    known = {(one["network"], one["asked"], one["paths"]) for one in found}
    for asked in demands or ["15", ALL]:
        for count in number or [3, 5]:
            for network in networks or USUAL:
                if (network, asked, count) in known:
                    continue
                one = measure(
                    network, asked, count, vectors=vectors, seed=seed, hose=hose, budget=budget
                )
                say(json.dumps(one))
                with file.open("a") as stream:
                    stream.write(json.dumps(one) + "\n")
                found.append(one)
    table = format_markdown(summarise(found))
    (out / "paths.md").write_text(table)
    print(table)
    raise typer.Exit(KEPT)


def measure_choice(
    network: str, count: int, choice: PathChoice, demand_file: Path | None
) -> dict[str, Any]:
    """Seconds of the processor and memory of this process, to choose paths of all demands."""
    found = network_of(network)
    volumes = found.volumes if demand_file is None else read_demands(demand_file, found)
    largest = np.array(list(volumes.values()))
    started = time.process_time()
    chosen = choose_paths(
        Graph.from_network(found), volumes, demand_box(largest), count, choice=choice
    )
    return {
        "network": Path(network).stem,
        "demands": len(largest),
        "paths": sum(map(len, chosen.paths.values())),
        "seconds": round(time.process_time() - started, 1),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def measure(
    network: str,
    asked: str,
    count: int,
    *,
    vectors: int,
    seed: int,
    hose: float | None = None,
    budget: float | None = None,
) -> dict[str, Any]:
    """Both choices of paths for one network: seconds of the processor, ratios to the optimum."""
    wanted: int | Literal["all"] = "all" if asked == ALL else int(asked)
    one: dict[str, Any] = {"network": network, "asked": asked, "paths": count}
    scales = {}
    for choice in CHOICES:
        started = time.process_time()
        made = instance(network, wanted, count, path_choice=choice, hose=hose, budget=budget)
        seconds = time.process_time() - started
        shown = min(vectors, max(60, 15 * vectors // len(made.demand_max)))
        B = made.sample(shown, seed)
        best = made.find_optimal(B).mlu
        compared = compare_with_network(made, B, best=best, reached=best, deadline=Deadline())
        assert compared is not None
        scales[choice] = made.scale
        one |= {"demands": len(made.demand_max), "vectors": shown}
        one[choice] = {
            "mean": compared.mean,
            "p99": compared.p99,
            "worst case": compared.worst_case,
            "columns": len(made.paths),
            "seconds": round(seconds, 2),
        }
    return one | {"guaranteed": scales["generated"] / scales["shortest"]}


def summarise(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each case, and the averages of each size."""
    rows = []
    for asked, count in dict.fromkeys((one["asked"], one["paths"]) for one in found):
        group = [one for one in found if (one["asked"], one["paths"]) == (asked, count)]
        rows += [make_row(one) for one in group]
        means = {
            choice: {
                name: float(np.mean([one[choice][name] for one in group]))
                for name in group[0][choice]
            }
            for choice in CHOICES
        }
        average = {"network": "**average**", "demands": asked, "paths": count, "vectors": ""}
        more = float(np.mean([one["guaranteed"] for one in group]))
        rows.append(make_row(average | means | {"guaranteed": more}))
    return rows


def make_row(one: dict[str, Any]) -> dict[str, Any]:
    shortest, generated = one["shortest"], one["generated"]
    return {
        "network": one["network"],
        "demands": one["demands"],
        "paths": one["paths"],
        "vectors": one["vectors"],
        "shortest: mean": f"{shortest['mean']:.4f}",
        "p99": f"{shortest['p99']:.3f}",
        "generated: mean": f"{generated['mean']:.4f}",
        "p99 ": f"{generated['p99']:.3f}",
        "at the corner": f"{generated['worst case']:.4f}",
        "guaranteed, times": f"{one['guaranteed']:.3f}",
        "seconds": f"{generated['seconds']:.2f}",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    return command(paths, "python -m experiments.paths", "newyork france --paths 3", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
