"""Networks of four and five nodes, on which routers are trained in a moment."""

from __future__ import annotations

import networkx

NETWORK = {
    "directed": True,
    "multigraph": False,
    "graph": {"demands": {"a": {"d": 4.0}, "b": {"d": 2.0}}},
    "nodes": [{"id": name} for name in "abcd"],
    "links": [
        {"source": s, "target": t, "capacity": 5.0, "length": 1.0}
        for s, t in ("ab", "ac", "ad", "bd", "cd", "bc")
    ],
}

# settings of a training in a moment
TINY = {
    "scenarios": 30,
    "priced": 50,
    "first_steps": 60,
    "later_steps": 30,
    "batch_size": 64,
    "validation": 100,
}

# a ring with a chord, as a file of links
RING = "source,target,capacity\nA,B,10\nB,C,10\nC,D,10\nD,A,10\nA,C,10\n"


def make_small_graph() -> networkx.DiGraph:
    """That of NETWORK: three paths for the demand of a, two for that of b."""
    graph = networkx.DiGraph(name="small", demands={"a": {"d": 4.0}, "b": {"d": 2.0}})
    for source, target in ("ab", "ac", "ad", "bd", "cd", "bc"):
        graph.add_edge(source, target, capacity=5.0, length=1.0)
    return graph


def make_shared_graph(first: str = "a") -> networkx.DiGraph:
    """Three demands of two nodes that share links; one has two paths, the others three.

    `first`: the name of the node that sends two of them.
    """
    graph = make_small_graph()
    for source, target in ("de", "ce", "be"):
        graph.add_edge(source, target, capacity=5.0, length=1.0)
    graph.graph["demands"] = {"a": {"d": 4.0, "e": 2.0}, "b": {"e": 3.0}}
    if first != "a":
        graph.graph["demands"][first] = graph.graph["demands"].pop("a")
        networkx.relabel_nodes(graph, {"a": first}, copy=False)
    return graph


def make_ring() -> networkx.Graph:
    """That of RING."""
    graph = networkx.Graph(name="ring")
    for line in RING.splitlines()[1:]:
        source, target, capacity = line.split(",")
        graph.add_edge(source, target, capacity=float(capacity))
    return graph
