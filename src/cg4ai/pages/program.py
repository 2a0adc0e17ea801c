"""Exported graphs as plain data, which `program.js` runs in a page.

What does not depend on the inputs is computed here, once; the rest is a list of operations on
arrays of known shapes, in float64. Numbers travel as bytes: in 32 bits where that loses nothing.
"""

from __future__ import annotations

import base64
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.export import ExportedProgram

from cg4ai.errors import InvalidInput

# what changes nothing of the numbers in their order: the shape alone says what comes out
SAME = "same"
RENAMED = {
    **dict.fromkeys(
        ("view", "_unsafe_view", "unsqueeze", "squeeze", "alias", "clone", "copy_strided"), SAME
    ),
    **dict.fromkeys(("_to_copy", "detach", "lift_fresh_copy", "contiguous"), SAME),
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_not": "not",
    "logical_and": "and",
    "logical_or": "or",
    "logical_not": "not",
    "logical_xor": "ne",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
}
# of these the shape of an argument decides alone
SHAPED = ("ones_like", "zeros_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full")
KNOWN = (  # what program.js computes
    *("abs", "add", "addmm", "all", "amax", "amin", "and", "any", "argmax", "argmin", "bmm", "cat"),
    *("ceil", "clamp", "constant_pad_nd", "cos", "cumsum", "div", "eq", "exp", "expand", "flip"),
    *("floor", "gather", "ge", "getitem", "gt", "index", "index_add", "index_put", "index_select"),
    *("isinf",),
    *("isnan", "le", "log", "log1p", "log_softmax", "lt", "maximum", "mean", "minimum", "mm"),
    *("mul", "ne", "neg", "not", "or", "permute", "pow", "prod", "reciprocal", "relu"),
    *("remainder", "round", "rsqrt", "rsub", SAME, "scatter_reduce", "select", "sigmoid", "sign"),
    *("sin", "slice", "softmax", "sort", "split_with_sizes", "sqrt", "sub", "sum", "tan", "tanh"),
    *("topk", "where"),
)


def pack_program(program: ExportedProgram) -> dict[str, Any]:
    """`constants`, `input` (the shape of the one input), `steps` and `outputs`, ready for JSON."""
    return _Packing(program).to_json()


class _Packing:
    """Values are numbered: constants, the input, then what each step makes."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.known: dict[str, Any] = {}  # nodes whose value does not depend on the input
        self.number: dict[str, int] = {}  # the others, by what number they have
        self.constants: list[Tensor] = []
        self.at: dict[tuple[Any, ...], int] = {}  # constants by where they lie and how
        self.steps: list[dict[str, Any]] = []
        self.shape: list[int] = []

    def to_json(self) -> dict[str, Any]:
        signature, state = self.program.graph_signature, self.program.state_dict
        given = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        outputs: Sequence[Any] = ()
        with torch.no_grad():
            for node in self.program.graph.nodes:
                if node.op == "placeholder" and node.name in given:
                    name = given[node.name]
                    held = state[name] if name in state else self.program.constants[name]
                    self.known[node.name] = held.detach()
                elif node.op == "placeholder":
                    self.shape = list(node.meta["val"].shape)
                    self.number[node.name] = -1
                elif node.op == "call_function":
                    self._call(node)
                elif node.op == "output":
                    outputs = node.args[0]
        found = [self._value(one) for one in outputs]
        return _renumbered(self.shape, self.constants, self.steps, found)

    def _call(self, node: Any) -> None:
        name = _name(node.target)
        if name == "_assert_tensor_metadata" or name.startswith("_assert"):
            return
        reads = [one.name for one in node.all_input_nodes]
        if all(one in self.known for one in reads) or name in SHAPED:
            self.known[node.name] = self._computed(node)
            return
        if name not in KNOWN:
            raise InvalidInput(
                f"a page cannot compute {node.target}: export the model as ONNX instead (cg4ai "
                "export RUN --onnx FILE)",
                code="unsupported",
            )
        self.number[node.name] = len(self.steps)
        value = node.meta["val"]
        shapes = [one.shape for one in value] if isinstance(value, (list, tuple)) else value.shape
        arguments = [self._argument(one) for one in node.args]
        named = {key: self._argument(one) for key, one in node.kwargs.items() if _tells(key, one)}
        step: dict[str, Any] = {"do": name, "of": arguments, "shape": _lists(shapes)}
        self.steps.append(step | ({"with": named} if named else {}))

    def _computed(self, node: Any) -> Any:
        """The value itself, by torch."""

        def get_value(one: Any) -> Any:
            if one.name in self.known:
                return self.known[one.name]
            return torch.zeros(one.meta["val"].shape, dtype=one.meta["val"].dtype)

        arguments = torch.fx.node.map_arg(node.args, get_value)
        named = torch.fx.node.map_arg(node.kwargs, get_value)
        return node.target(*arguments, **named)

    def _argument(self, value: Any) -> Any:
        """Values as {"v": number}; lists as they are; infinities by name."""
        if isinstance(value, torch.fx.Node):
            return {"v": self._value(value)}
        if isinstance(value, (list, tuple)):
            return [self._argument(one) for one in value]
        if isinstance(value, float) and not math.isfinite(value):
            return {"n": str(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise InvalidInput(f"a page cannot read {value!r} in an exported graph", code="unsupported")

    def _value(self, node: torch.fx.Node) -> Any:
        """A constant as ("constant", i), the input or a step by its number."""
        if node.name in self.number:
            return self.number[node.name]
        held = self.known[node.name]
        same = (held.data_ptr(), held.dtype, tuple(held.shape), tuple(held.stride()))
        if same not in self.at:
            self.at[same] = len(self.constants)
            self.constants.append(held)
        return ("constant", self.at[same])


def _renumbered(
    shape: list[int], constants: list[Tensor], steps: list[dict[str, Any]], outputs: Sequence[Any]
) -> dict[str, Any]:
    """Numbers in one row: constants, the input, steps."""

    def get_number(value: Any) -> int:
        if isinstance(value, tuple):
            return int(value[1])
        return len(constants) + 1 + int(value)

    def renumber(value: Any) -> Any:
        if isinstance(value, dict) and "v" in value:
            return {"v": get_number(value["v"])}
        if isinstance(value, list):
            return [renumber(one) for one in value]
        return value

    for step in steps:
        step["of"] = renumber(step["of"])
        if "with" in step:
            step["with"] = {key: renumber(one) for key, one in step["with"].items()}
    return {
        "constants": [array_data(one.cpu().numpy()) for one in constants],
        "input": shape,
        "steps": steps,
        "outputs": [get_number(one) for one in outputs],
    }


def _name(target: Any) -> str:
    if target is operator.getitem:
        return "getitem"
    plain = str(target).split(".")[1]
    return RENAMED.get(plain, plain)


def _tells(key: str, value: Any) -> bool:
    """Whether a named argument changes what comes out: all numbers here are float64."""
    return value is not None and key not in ("dtype", "layout", "device", "memory_format")


def _lists(shapes: Any) -> Any:
    if isinstance(shapes, torch.Size):
        return list(shapes)
    return [_lists(one) for one in shapes]


def array_data(array: NDArray[Any]) -> dict[str, Any]:
    """An array as JSON: shape, kind of numbers and their bytes (base64, little endian).

    Truth values and whole numbers become numbers; of mostly zeros only the others are kept.
    """
    values = np.ascontiguousarray(array, np.float64).reshape(-1)
    places = np.flatnonzero(values)
    made: dict[str, Any] = {"shape": list(array.shape)}
    if values.size > 64 and 3 * places.size < values.size:
        return made | {"size": values.size, "at": _bytes(places), **_numbers(values[places])}
    return made | _numbers(values)


def _numbers(values: NDArray[np.float64]) -> dict[str, Any]:
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    if np.array_equal(single.astype(np.float64), values, equal_nan=True):
        return {"kind": "f4", "bytes": _base64(single.astype("<f4"))}
    return {"kind": "f8", "bytes": _base64(values.astype("<f8"))}


def _bytes(places: NDArray[np.int64]) -> str:
    return _base64(places.astype("<u4"))


def _base64(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
