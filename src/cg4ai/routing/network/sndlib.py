"""The networks of SNDlib by name: topology and demands from topohub, capacities from SNDlib."""

from __future__ import annotations

import importlib.resources
import math
import warnings
from dataclasses import replace
from typing import Any

from cg4ai.apps import format_list, import_optional
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.routing.network.network import Network, NetworkBuilder, is_geographic

# Capacity of a link is what is installed already plus one largest module, and topohub knows
# neither. A network that is not listed here gets one unit on every link.
LARGEST_MODULE = {
    "abilene": 40000,
    "atlanta": 4000,
    "dfn-bwin": 350000,
    "di-yuan": 32,
    "france": 2500,
    "geant": 40000,
    "newyork": 4000,
    "nobel-eu": 800,  # link L39 too: the 77400 of its native entry is a corrupt figure
    "nobel-germany": 800,
    "nobel-us": 800,
    "polska": 622,
    "ta1": 11088000,
}
INSTALLED_EVERYWHERE = {"abilene": 9920}
INSTALLED = {
    "abilene": {"ATLAng IPLSng": 2480},
    "atlanta": {
        "N1 N6": 11000,
        "N1 N7": 7000,
        "N1 N8": 4000,
        "N2 N3": 8000,
        "N2 N5": 1000,
        "N2 N6": 15000,
        "N3 N8": 8000,
        "N4 N6": 4000,
        "N6 N13": 2000,
        "N7 N10": 5000,
        "N7 N14": 5000,
        "N8 N9": 3000,
        "N8 N15": 3000,
        "N9 N10": 2000,
        "N9 N12": 3000,
        "N9 N15": 1000,
        "N11 N13": 1000,
        "N11 N14": 1000,
        "N13 N14": 1000,
    },
}
# topohub merges parallel links.
DOUBLED = {"ta1": ("N17 N20", "N3 N5", "N11 N16", "N16 N18")}


def list_names(family: str = "sndlib") -> list[str]:
    """The networks of a family of topohub; empty where it has none of that name."""
    folder = importlib.resources.files(import_optional("topohub")) / "data" / family
    found = folder.iterdir() if family.isidentifier() and folder.is_dir() else ()
    return sorted(f.name[: -len(".json")] for f in found if f.name.endswith(".json"))


def load_by_name(name: str) -> Network:
    """An SNDlib network (`abilene`), or any other of topohub by its full key (`topozoo/Aarnet`).

    Only SNDlib's networks bring demands; others need a demand file.
    """
    topology = load_stored(name)
    nodes = topology["nodes"]
    labels = [str(node.get("name") or node["id"]) for node in nodes]
    if len(set(labels)) < len(labels):
        labels = [str(node["id"]) for node in nodes]
    label = dict(zip((node["id"] for node in nodes), labels, strict=True))
    positions = [(float(node["pos"][0]), float(node["pos"][1])) for node in nodes]
    position = dict(zip(label, positions, strict=True))
    in_degrees = is_geographic(positions)
    builder = NetworkBuilder(name)
    for key, text in label.items():
        builder.add_node(text, place=name, position=position[key])
    for edge in topology["edges"]:
        ends = edge["source"], edge["target"]
        builder.add_link(
            label[ends[0]],
            label[ends[1]],
            capacity=_capacity(name, label[ends[0]], label[ends[1]]),
            place=name,
            # Distances were computed as if pixels were degrees where they are not.
            length=edge["dist"] if in_degrees else math.dist(position[ends[0]], position[ends[1]]),
        )
    for source, row in topology["graph"]["demands"].items():
        for target, volume in row.items():
            builder.add_demand(label[source], label[target], volume=volume, place=name)
    network = builder.build(place=name)
    if name in LARGEST_MODULE:
        return network
    unknown = "the capacities of this network are not known: 1 everywhere"
    return replace(network, notes=(*network.notes, unknown))


def load_stored(name: str) -> Any:
    """What topohub has of a network: its node-link form."""
    key = name if "/" in name else f"sndlib/{name}"
    with warnings.catch_warnings():
        # topohub leaves the file to the garbage collector, which warns.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return import_optional("topohub").get(key)
        except KeyError:
            family = name.partition("/")[0]
            known = [f"{family}/{one}" for one in list_names(family)]
            some = format_list(known) or ", ".join(list_names())
            raise InvalidInput(
                f"unknown network {name!r}{did_you_mean(name, known or list_names())}; use one of "
                f"{some}, any other of topohub by its full name, such as topozoo/Aarnet, the path "
                "of a file (.txt or .xml of SNDlib, .graphml, .json, .csv or .graph) or a networkx "
                "graph",
                code="unknown-name",
            ) from None


def _capacity(network: str, a: str, b: str) -> float:
    pair = {f"{a} {b}", f"{b} {a}"}
    installed: float = INSTALLED_EVERYWHERE.get(network, 0)
    for link, capacity in INSTALLED.get(network, {}).items():
        if link in pair:
            installed = capacity
    copies = 2 if pair.intersection(DOUBLED.get(network, ())) else 1
    return copies * (installed + LARGEST_MODULE.get(network, 1))
