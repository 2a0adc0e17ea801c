"""A network of four nodes and two demands, on which routers are trained in a moment."""

from __future__ import annotations

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
