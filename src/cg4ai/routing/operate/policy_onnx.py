"""One node's policy as an ONNX model, for those who run such: double volumes in, shares out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cg4ai.apps import import_optional
from cg4ai.members import erfc_series
from cg4ai.routing.operate.policy import BETTER, INSIDE

OPSET = 17


def onnx_model(policy: dict[str, Any]) -> bytes:
    """The same function as `policy.shares`: `demands` (n, d) -> `shares` (n, p), float64."""
    onnx = import_optional("onnx")
    graph = _Graph(onnx)
    total = graph.rows(np.zeros(len(policy["paths"])), len(policy["demands"]))
    for term in policy["terms"]:
        wanted = graph.rows(np.zeros(len(policy["paths"])), len(policy["demands"]))
        for part in term["parts"]:
            places = np.eye(len(policy["paths"]))[part["writes"]]
            wanted = graph.add(
                "Add", wanted, graph.add("MatMul", _part(graph, part, policy), places)
            )
        kept = _kept(graph, policy, wanted) if policy["shield"] else wanted
        total = graph.add("Add", total, graph.add("Mul", kept, np.array(term["weight"])))
    return graph.model(total, len(policy["demands"]), len(policy["paths"]))


class _Graph:
    """Nodes and constants in the order in which they are made; arrays become constants."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """A node of this kind; returns the name of its output."""
        names = [one if isinstance(one, str) else self._constant(one) for one in inputs]
        name = f"value_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [name], **attributes))
        return name

    def rows(self, values: Any, width: int) -> str:
        """The same values (k,) for every row of `demands` (n, width)."""
        zero = self.add("MatMul", "demands", np.zeros((width, 1)))
        return self.add("Add", zero, np.array(values, np.float64)[None])

    def _constant(self, array: Any) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def model(self, result: str, inputs: int, outputs: int) -> bytes:
        helper, double = self.onnx.helper, self.onnx.TensorProto.DOUBLE
        self.nodes.append(helper.make_node("Identity", [result], ["shares"]))
        graph = helper.make_graph(
            self.nodes,
            "agent",
            [helper.make_tensor_value_info("demands", double, ["n", inputs])],
            [helper.make_tensor_value_info("shares", double, ["n", outputs])],
            self.constants,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        made.ir_version = 8  # what goes with that opset; later ones are not read by older runtimes
        self.onnx.checker.check_model(made)
        data: bytes = made.SerializeToString()
        return data


def _part(graph: _Graph, part: dict[str, Any], policy: dict[str, Any]) -> str:
    if "constant" in part:
        return graph.rows(part["constant"], len(policy["demands"]))
    reads = np.array(part["reads"], np.int64)
    x = values = graph.add(
        "Sub", graph.add("Gather", "demands", reads, axis=1), np.array(part["shift"])
    )
    # the scale in the weights: see `cg4ai.ensemble.export.expand_scalar_factors`
    scale = np.array(part["scale"])[:, None]
    for number, layer in enumerate(part["layers"]):
        weight = np.array(layer["weight"]).T / (1.0 if number else scale)
        product = graph.add("MatMul", values, weight.copy())
        values = graph.add("Add", product, np.array(layer["bias"]))
        if number < len(part["layers"]) - 1:
            values = _activated(graph, part["activation"], values)
    if part["skip"] is not None:
        skipped = graph.add("MatMul", x, np.array(part["skip"]).T / scale)
        values = graph.add("Add", values, skipped)
    return graph.add("Softmax", values, axis=1)


def _activated(graph: _Graph, name: str, values: str) -> str:
    if name in ("relu", "tanh"):
        return graph.add({"relu": "Relu", "tanh": "Tanh"}[name], values)
    # gelu by a series: runtimes know no error function of doubles
    series = erfc_series()
    one, two = np.array(1.0), np.array(2.0)
    size = graph.add("Min", graph.add("Abs", values), np.array(series.largest * math.sqrt(2.0)))
    t = graph.add("Div", size, np.array(math.sqrt(2.0)))
    u = graph.add(
        "Div",
        graph.add("Sub", t, np.array(series.centre)),
        graph.add("Add", t, np.array(series.centre)),
    )
    double, (*rest, last) = graph.add("Mul", u, two), reversed(series.coefficients)
    later = now = graph.add("Mul", u, np.array(0.0))
    for coefficient in rest:
        product = graph.add("Sub", graph.add("Mul", double, now), later)
        later, now = now, graph.add("Add", product, np.array(coefficient))
    curve = graph.add("Add", graph.add("Sub", graph.add("Mul", u, now), later), np.array(last))
    bell = graph.add("Exp", graph.add("Neg", graph.add("Mul", t, t)))
    scale = graph.add("Add", graph.add("Mul", two, t), one)
    tail = graph.add("Div", graph.add("Mul", curve, bell), graph.add("Mul", two, scale))
    below = graph.add("Less", values, np.array(0.0))
    share = graph.add("Where", below, tail, graph.add("Sub", one, tail))
    return graph.add("Mul", values, share)


def _kept(graph: _Graph, policy: dict[str, Any], wanted: str) -> str:
    shield = policy["shield"]
    anchor, loads = np.array(shield["anchor"]), np.array(shield["loads"])
    budgets, zero, one = np.array(shield["budgets"]), np.array(0.0), np.array(1.0)
    flows = graph.add("Gather", "demands", np.array(policy["demand_of_path"], np.int64), axis=1)

    def slack(split: Any) -> str:
        used = graph.add("MatMul", graph.add("Mul", flows, split), loads.T.copy())
        return graph.add("Sub", budgets, used)

    own, other = slack(wanted), slack(anchor)
    safe = graph.add("Max", other, zero)
    enough = graph.add("Add", own, np.array(BETTER))
    short = graph.add("And", graph.add("Less", own, zero), graph.add("Less", enough, other))
    gap = graph.add("Where", short, graph.add("Sub", safe, own), one)
    step = graph.add("Sub", graph.add("Min", safe, np.array(INSIDE)), own)
    moved = graph.add("Where", short, graph.add("Div", step, gap), zero)
    together = np.array(shield["together"])
    theta = graph.rows(np.zeros(len(anchor)), len(policy["demands"]))
    for group in np.unique(together):
        rules = np.flatnonzero((loads[:, together == group] != 0).any(axis=1))
        if len(rules):
            most = graph.add("Gather", moved, rules, axis=1)
            most = graph.add("ReduceMax", most, axes=[1], keepdims=1)
            paths = (together == group).astype(np.float64)[None]
            theta = graph.add("Add", theta, graph.add("MatMul", most, paths))
    way = graph.add("Sub", anchor, wanted)
    return graph.add("Add", wanted, graph.add("Mul", graph.add("Min", theta, one), way))
