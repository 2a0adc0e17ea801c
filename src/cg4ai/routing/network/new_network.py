"""From a file of somebody else's to one that `cg4ai route` reads, with a check of all of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai import runs
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.routing.demands.demand_models import (
    MODELS,
    MOST_FLOWS,
    LeastUtilisation,
    count_flows,
    least_mlu,
    make_demands,
)
from cg4ai.routing.demands.sets import demand_box
from cg4ai.routing.network.drafts import Draft, node_link_text, read_draft
from cg4ai.routing.network.instance import WantedPaths, build_with_paths, network_of
from cg4ai.routing.network.links import ReadingOptions, format_entry_count, list_first
from cg4ai.routing.network.network import Network
from cg4ai.routing.network.readers import read_demands
from cg4ai.routing.train.optimal import find_bottleneck

OWN = "own"
FAR = 1e3  # an optimum this far from 1 is rather that of another unit
TRIED = 300  # demands for which paths are generated, at most
TRAINED = 50  # demands that a first training takes, at most


@dataclass(frozen=True)
class NewNetwork:
    """What was written, and what was found out about it.

    `optimum` is the least possible MLU at the demands, whatever the paths, None without demands or
    where that is too large to solve; `by_paths` the same with so many generated `paths` for each.
    """

    file: Path
    draft: Draft
    network: Network
    paths: int
    demands: str
    optimum: LeastUtilisation | None
    by_paths: float | None

    @property
    def command(self) -> str:
        """How to train a first router on it."""
        count = len(self.network.volumes)
        words = ["cg4ai route", str(self.file), "--demands", "all" if count <= TRAINED else "20"]
        words += ["--paths", str(self.paths)]
        fits = self.by_paths is not None and self.by_paths <= 1
        words += ["--load none"] if fits and self.demands not in MODELS else []
        return " ".join([*words, "--out", f"{self.file.stem}-router"])

    def as_data(self) -> dict[str, Any]:
        """For programs; what is not known is None."""
        draft, network, optimum = self.draft, self.network, self.optimum
        return {
            "file": str(self.file),
            "nodes": len(network.nodes),
            "links": len(draft.links),
            "directed": draft.is_directed,
            "connected": draft.is_connected,
            "lengths": draft.describe_lengths(),
            "demands": len(network.volumes),
            "volume": sum(network.volumes.values()),
            "optimum": None if optimum is None else optimum.mlu,
            "bottlenecks": [] if optimum is None else self._bottlenecks(optimum),
            "optimum_by_paths": self.by_paths,
            "paths": self.paths,
            "changes": draft.changes,
            "cautions": [*draft.cautions, *self.list_cautions()],
            "command": self.command if network.volumes else None,
        }

    def _bottlenecks(self, optimum: LeastUtilisation) -> list[str]:
        names = self.network.nodes
        return [f"{names[source]}->{names[target]}" for source, target in optimum.arcs]

    def list_cautions(self) -> list[str]:
        """What may be wrong with the demands."""
        found = []
        if not self.network.volumes:
            found.append(
                "there are no demands: give a file, or --demands gravity or uniform; cg4ai route "
                "takes a --demand-file, too"
            )
        if self.optimum is not None and not 1 / FAR <= self.optimum.mlu <= FAR:
            found.append(
                f"at best a link is filled to {self.optimum.mlu:.3g} of its capacity: are demands "
                "and capacities in one unit?"
            )
        elif self.optimum is not None and self.optimum.mlu > 1:
            found.append(
                f"the demands cannot be routed together: whatever the paths, some link is loaded "
                f"to {self.optimum.mlu:.4g} of its capacity or more "
                f"({list_first(self._bottlenecks(self.optimum))}); cg4ai route scales them down"
            )
        elif self.by_paths is not None and self.by_paths > 1:
            found.append(
                f"with {self.paths} generated paths for each demand some link is loaded to "
                f"{self.by_paths:.4g} of its capacity or more, although other paths would do: "
                "allow more of them, or cg4ai route scales the demands down"
            )
        return found

    def __str__(self) -> str:
        draft, network = self.draft, self.network
        sizes = [link.capacity for link in draft.links]
        ways = "in one direction each" if draft.is_directed else "in both directions"
        whole = "; every node reaches every other" if draft.is_connected else ""
        count = format_entry_count(network.nodes, "node", "nodes")
        lines = [
            f"{count}, {len(draft.links)} links used {ways}{whole}",
            f"capacities: {min(sizes):g} to {max(sizes):g}",
            f"lengths: {draft.describe_lengths()}",
        ]
        if network.volumes:
            total = sum(network.volumes.values())
            lines.append(
                f"demands: {len(network.volumes)} ({self.demands}), {total:.6g} in all; "
                f"{self._routed()}"
            )
        lines += [f"changed: {change}" for change in draft.changes]
        lines += [f"CAUTION: {caution}" for caution in (*draft.cautions, *self.list_cautions())]
        lines.append(f"Written to {self.file}, which reads back as the same network.")
        if network.volumes:
            lines.append(f"Now train: {self.command}")
        return "\n".join(lines)

    def _routed(self) -> str:
        if self.optimum is None:
            return "too many to solve for the best routing of all of them at once"
        own = f"at best they fill the busiest link to {self.optimum.mlu:.4g} of its capacity"
        if self.by_paths is None:
            return own
        return f"{own}, with {self.paths} generated paths each to {self.by_paths:.4g}"


def new_network(
    source: Path,
    out: Path,
    *,
    reading: ReadingOptions | None = None,
    demands: str = OWN,
    load: float = 0.8,
    paths: int = 3,
    force: bool = False,
) -> NewNetwork:
    """Read, check and write a network; see `NewNetwork` for what comes of it.

    `demands`: "own" are those of the file, "gravity" and "uniform" a model of them with `load` as
    the best MLU, anything else is a CSV file of demands. What must be mended by hand is refused,
    all of it at once, and nothing is written then.
    """
    if out.suffix.lower() != ".json":
        raise InvalidInput(f"--out must end in .json, got {out}", code="bad-file")
    if out.exists() and not force:
        raise InvalidInput(
            f"{out} exists already; choose another name, or replace it with --force", code="exists"
        )
    if not 0 < load <= 1:
        raise InvalidInput(f"load must be above 0 and at most 1, got {load}", code="range")
    reading = reading or ReadingOptions()
    if reading.default is not None and not reading.default > 0:
        raise InvalidInput(
            f"--default-capacity must be above 0, got {reading.default}", code="range"
        )
    draft = read_draft(source, reading)
    network = draft.build_network()
    network = replace(network, volumes=_volumes(network, demands, load))
    optimum = _optimum(network)
    by_paths = _by_paths(network, paths)
    runs.write_bytes(out, node_link_text(draft, _by_name(network)).encode())
    again = network_of(out)
    same = (again.nodes, again.arcs, again.volumes) == (
        network.nodes,
        network.arcs,
        network.volumes,
    )
    if not same:
        raise InvalidInput(f"{out} reads back as another network than was written: please report")
    return NewNetwork(out, draft, network, paths, demands, optimum, by_paths)


def _volumes(network: Network, demands: str, load: float) -> dict[tuple[int, int], float]:
    if demands == OWN:
        return network.volumes
    if demands in MODELS:
        return make_demands(network, demands, load)
    file = Path(demands)
    if not file.suffix and not file.exists():
        hint = did_you_mean(demands, (OWN, *MODELS))
        raise InvalidInput(
            f"demands must be {OWN}, {', '.join(MODELS)} or a .csv or .demands file, got "
            f"{demands!r}{hint}",
            code="unknown-name",
        )
    return read_demands(file, network)


def _by_name(network: Network) -> dict[tuple[str, str], float]:
    names = network.nodes
    return {(names[s], names[t]): volume for (s, t), volume in network.volumes.items()}


def _optimum(network: Network) -> LeastUtilisation | None:
    """None where there are no demands, or too many; a demand without any path is refused."""
    known = network.volumes and count_flows(network, network.volumes) <= MOST_FLOWS
    return least_mlu(network, network.volumes) if known else None


def _by_paths(network: Network, paths: int) -> float | None:
    if not 0 < len(network.volumes) <= TRIED:
        return None
    region = demand_box(np.array(list(network.volumes.values())))
    wanted = WantedPaths(paths, "generated")
    made, _ = build_with_paths(network, network.volumes, region, wanted)
    return find_bottleneck(made).mlu
