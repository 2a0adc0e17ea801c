"""One node's part of a router, computed from its exported file by NumPy alone.

    python policy.py agent-NODE.json 120.5 80    # volumes of the node's demands, in their order

prints the share of every path. `cg4ai export RUN --agents DIR` copies this file into DIR.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "cg4ai agent 1"
INSIDE = 1e-12  # how far below a budget a restored split aims
BETTER = 1e-9  # what the anchor must have more of a budget, which it may exceed beyond `upper`


def load(path: str | Path) -> dict[str, Any]:
    """The policy in a file."""
    policy: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if policy.get("format") != FORMAT:
        raise ValueError(f"{path} is not a policy of the format {FORMAT!r}")
    # arrays once, not at every answer
    return {**policy, **{name: _arrays(policy[name]) for name in ("terms", "shield")}}


def _arrays(value: Any) -> Any:
    """The same with lists of numbers, at any depth, as arrays."""
    if isinstance(value, dict):
        return {name: _arrays(inner) for name, inner in value.items()}
    if isinstance(value, list):
        inner = [_arrays(one) for one in value]
        return np.array(inner) if inner and not isinstance(inner[0], dict) else inner
    return value


def shares(policy: dict[str, Any], demands: Any) -> Any:
    """Volumes (n, d) of the node's demands -> shares (n, p) of their paths."""
    volumes = np.asarray(demands, np.float64)
    if volumes.ndim != 2 or volumes.shape[1] != len(policy["demands"]):
        raise ValueError(f"expected (n, {len(policy['demands'])}) volumes, got {volumes.shape}")
    total = np.zeros((len(volumes), len(policy["paths"])))
    for term in policy["terms"]:
        wanted = np.zeros_like(total)
        for part in term["parts"]:
            wanted[:, part["writes"]] = _part(part, volumes)
        total += term["weight"] * (_kept(policy, volumes, wanted) if policy["shield"] else wanted)
    return total


def _part(part: dict[str, Any], volumes: Any) -> Any:
    """What one network, or constant split, gives for the paths that it writes."""
    if "constant" in part:
        return np.tile(part["constant"], (len(volumes), 1))
    x = (volumes[:, part["reads"]] - part["shift"]) / part["scale"]
    values = x
    for number, layer in enumerate(part["layers"]):
        values = values @ np.asarray(layer["weight"]).T + layer["bias"]
        if number < len(part["layers"]) - 1:
            values = _activated(part["activation"], values)
    if part["skip"] is not None:
        values = values + x @ np.asarray(part["skip"]).T
    exponential = np.exp(values - values.max(axis=1, keepdims=True))
    return exponential / exponential.sum(axis=1, keepdims=True)


def _activated(name: str, values: Any) -> Any:
    if name == "relu":
        return np.maximum(values, 0.0)
    if name == "tanh":
        return np.tanh(values)
    return values * (0.5 + 0.5 * np.vectorize(math.erf)(values / math.sqrt(2.0)))  # gelu


def _kept(policy: dict[str, Any], volumes: Any, wanted: Any) -> Any:
    """The shares moved towards the anchor, just as far as the node's budgets ask it.

    Paths with the same number in `together` move together; a rule is of the group of its paths.
    """
    shield = policy["shield"]
    anchor, loads = np.asarray(shield["anchor"]), np.asarray(shield["loads"])  # (p,), (rules, p)
    flows = volumes[:, policy["demand_of_path"]]
    own = shield["budgets"] - (flows * wanted) @ loads.T
    if (own >= 0).all():
        return wanted
    other = shield["budgets"] - (flows * anchor) @ loads.T
    safe = np.maximum(other, 0.0)
    aim = np.minimum(safe, INSIDE)
    short = (own < 0) & (other > own + BETTER)
    moved = np.where(short, (aim - own) / np.where(short, safe - own, 1.0), 0.0)
    theta = np.zeros_like(wanted)
    together = np.asarray(shield["together"])
    for group in np.unique(together):
        rules = (loads[:, together == group] != 0).any(axis=1)
        if rules.any():
            theta[:, together == group] = moved[:, rules].max(axis=1, keepdims=True)
    return wanted + np.minimum(theta, 1.0) * (anchor - wanted)


def main(arguments: list[str]) -> None:
    """Print the share of every path for the volumes given."""
    policy = load(arguments[0])
    found = shares(policy, [[float(text) for text in arguments[1:]]])[0]
    for path, share in zip(policy["paths"], found, strict=True):
        print(f"{share:.6f}  {'->'.join(path)}")


if __name__ == "__main__":
    main(sys.argv[1:])
