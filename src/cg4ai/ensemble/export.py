"""Ensembles as graphs that other programs run: torch's exported programs, and ONNX models of them.

Mixture, completion and shield are one graph of elementary operations in float64, the same for any
number of inputs. GELU is spelled out, since runtimes know no error function in that precision.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.polynomial import chebyshev
from scipy.special import erfcx
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.extras import import_optional
from cg4ai.records import Array
from cg4ai.runs import files

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble, EnsembleModule

Precision = Literal["float64", "float32"]
EXAMPLES = 3  # inputs by which a graph is traced; 0 and 1 would be taken for constants
# operations with a number as their second argument
COMPARED, COMPUTED = ("lt", "le", "gt", "ge", "eq", "ne"), ("add", "sub", "mul", "div")
REDUCED = ("sum", "amax", "amin", "any", "all", "mean", "prod")  # along axes: their second argument
# of the series for the error function, which is 3e-15 away from it at most, up to FAR
CENTRE, DEGREE, FAR = 3.75, 20, 30.0


class ThetaModule(nn.Module):
    """Outputs (n, r) of an ensemble, and how far its shield moved them, (n,)."""

    def __init__(self, module: EnsembleModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.module(inputs), self.module.theta(inputs)


def export_program(
    module: nn.Module, input_size: int, *, rows: int | None = None
) -> ExportedProgram:
    """A graph of elementary operations; for any number of inputs, or for `rows` of them."""
    program = _traced(module, input_size, rows)
    with _quietly():
        table = {**torch.export.default_decompositions(), **_spelled_out()}
        spelled: ExportedProgram = program.run_decompositions(table)
        return spelled


def _traced(module: nn.Module, input_size: int, rows: int | None = None) -> ExportedProgram:
    count = EXAMPLES if rows is None else rows
    example = torch.zeros(count, input_size, dtype=torch.float64)
    shapes = ({0: Dim("n")},) if rows is None else None
    with torch.no_grad():
        module(example)  # what is computed once, by NumPy, must be there before it is traced
    with _quietly():
        return torch.export.export(module, (example,), dynamic_shapes=shapes)


def export_onnx(
    ensemble: Ensemble,
    path: Path,
    *,
    precision: Precision = "float64",
    names: tuple[str, str] = ("inputs", "outputs"),
) -> Path:
    """Write the ensemble as an ONNX model; `names` are those of its input and output."""
    files.write_bytes(path, build_onnx_model(ensemble, precision=precision, names=names))
    return path


def build_onnx_model(
    ensemble: Ensemble,
    *,
    precision: Precision = "float64",
    names: tuple[str, str] = ("inputs", "outputs"),
    columns: Mapping[str, Sequence[str]] | None = None,
) -> bytes:
    """The model: `names[0]` (n, d) -> `names[1]` (n, r), for any n.

    `columns`: what single inputs and outputs are called, for the model's own description.
    """
    if precision not in ("float64", "float32"):
        hint = did_you_mean(str(precision), ("float64", "float32"))
        raise InvalidInput(
            f"precision must be float64 or float32, got {precision!r}{hint}", code="unknown-name"
        )
    onnx = import_optional("onnx")
    import_optional("onnxscript")  # what torch makes ONNX models with
    program = export_program(ensemble.to("cpu").as_module(), ensemble.input_size)
    # what is elementary already is not spelled out again
    model = _converted(_traced(_exact(program), ensemble.input_size), names)
    _named(model.graph, names)
    for node in model.graph.node:  # where in torch each came from
        del node.metadata_props[:]
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    for name, listed in (columns or {}).items():
        model.metadata_props.add(key=name, value=json.dumps(list(listed)))
    if precision == "float32":
        _lowered(model.graph, onnx)
    else:
        expand_scalar_factors(model.graph, onnx)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def _converted(program: ExportedProgram, names: tuple[str, str]) -> Any:
    """What torch makes of the program, as it is: its optimiser leaves out what is nearly 0."""
    try:
        with _quietly():
            made = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                optimize=False,
                input_names=names[:1],
                output_names=names[1:],
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise InvalidInput(
            f"torch cannot write this model as ONNX ({reason}); use torch.export of "
            "ensemble.as_module() instead",
            code="unsupported",
        ) from error
    assert made is not None
    return made.model_proto


def compute_difference(ensemble: Ensemble, model: bytes, inputs: Array) -> float:
    """How far an ONNX model's outputs are from `predict` at inputs (n, d), at most."""
    runtime = import_optional("onnxruntime")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    kind = np.float64 if entry.type == "tensor(double)" else np.float32
    (found,) = session.run(None, {entry.name: np.asarray(inputs, kind)})
    return float(np.abs(found - ensemble.predict(inputs, outside="ignore")).max(initial=0.0))


def _named(graph: Any, names: Sequence[str]) -> None:
    """The number of inputs is called n, whatever it was called while tracing."""
    for value, name in zip((graph.input[0], graph.output[0]), names, strict=True):
        assert value.name == name
        value.type.tensor_type.shape.dim[0].dim_param = "n"


def expand_scalar_factors(graph: Any, onnx: Any) -> None:
    """Factors that are single numbers become rows of that number.

    onnxruntime fuses a product by a scalar with a matrix product next to it, and rounds the scalar
    to 32 bits then, in graphs of 64 bits too.
    """
    shapes = {one.name: one.type.tensor_type.shape.dim for one in graph.value_info}
    single = {
        one.name: float(onnx.numpy_helper.to_array(one).reshape(-1)[0])
        for one in graph.initializer
        if one.data_type == onnx.TensorProto.DOUBLE and set(one.dims) <= {1}
    }
    made: dict[str, Any] = {}
    for node in graph.node:
        dims = shapes.get(node.output[0], ())
        width = dims[-1].dim_value if len(dims) > 1 else 1
        for place, name in enumerate(node.input if node.op_type in ("Mul", "Div") else ()):
            if name in single and width > 1:
                node.input[place] = f"{name}_{width}"
                row = np.full((1, width), single[name])
                made[node.input[place]] = onnx.numpy_helper.from_array(row, node.input[place])
    graph.initializer.extend(made.values())


def _lowered(graph: Any, onnx: Any) -> None:
    """All numbers of 64 bits become such of 32, those of nodes and casts included.

    Ends that numbers are clamped to are rounded inwards, so that outputs keep those given.
    """
    double, single = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT
    ends = np.finfo(np.float32)

    def lower_tensor(tensor: Any, toward: float | None = None) -> None:
        if tensor.data_type == double:
            values = onnx.numpy_helper.to_array(tensor)
            # what is finite stays so: 0 times infinity would be no number
            bounded = np.where(np.isinf(values), values, np.clip(values, ends.min, ends.max))
            lower = bounded.astype(np.float32)
            if toward is not None:
                wrong = (lower < bounded) if toward > 0 else (lower > bounded)
                lower = np.where(wrong, np.nextafter(lower, np.float32(toward)), lower)
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(lower), tensor.name))

    inwards = _clamped_to(graph)
    for tensor in graph.initializer:
        lower_tensor(tensor, inwards.get(tensor.name))
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == double:
                attribute.i = single
            if attribute.HasField("t"):
                lower_tensor(attribute.t)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == double:
            value.type.tensor_type.elem_type = single


def _clamped_to(graph: Any) -> dict[str, float]:
    """Constants that are least (+inf) or largest (-inf) numbers: where rounding may move them.

    Each gets a name of its own for each use, for one number may be both.
    """
    constants = {one.name: one for one in graph.initializer}
    casts = {one.output[0]: one for one in graph.node if one.op_type in ("Cast", "CastLike")}
    sides = {"Max": {1: np.inf}, "Min": {1: -np.inf}, "Clip": {1: np.inf, 2: -np.inf}}
    found: dict[str, float] = {}
    replaced: dict[str, Any] = {}
    for clamp in graph.node:
        for place, toward in sides.get(clamp.op_type, {}).items():
            node, at = clamp, place
            while at < len(node.input) and node.input[at] in casts:
                node, at = casts[node.input[at]], 0
            if at >= len(node.input) or node.input[at] not in constants:
                continue
            source = constants[node.input[at]]
            own = f"{source.name}_{'least' if toward > 0 else 'most'}"
            if own not in found:
                copy = graph.initializer.add()
                copy.CopyFrom(source)
                copy.name = own
                found[own] = toward
            node.input[at] = own
            replaced[source.name] = source
    used = {name for node in graph.node for name in node.input}
    for name in replaced.keys() - used:
        graph.initializer.remove(replaced[name])
    return found


def _exact(program: ExportedProgram) -> nn.Module:
    """The program with numbers in its graph as tensors: torch would write them in 32 bits.

    Axes of reductions are counted from the first: onnxruntime keeps one that is counted from the
    last where there are no inputs.
    """
    module, aten = program.module(), torch.ops.aten
    tensors = {getattr(aten, name).Scalar: getattr(aten, name).Tensor for name in COMPARED}
    tensors[aten.clamp.default] = aten.clamp.Tensor
    takes = {*tensors.values(), *(getattr(aten, name).Tensor for name in COMPUTED)}

    def register_number(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        name = f"number_{len(dict(module.named_buffers()))}"
        module.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        return module.graph.get_attr(name)

    reduced = [getattr(aten, name) for name in REDUCED]
    for node in list(module.graph.nodes):
        if getattr(node.target, "overloadpacket", None) in reduced and len(node.args) > 1:
            axes = _from_the_first(node.args[1], node.args[0].meta["val"].ndim)
            node.args = (node.args[0], axes, *node.args[2:])
        if node.target is aten.scalar_tensor.default and node.kwargs["dtype"] is torch.float64:
            with module.graph.inserting_before(node):
                node.replace_all_uses_with(register_number(float(node.args[0])))
        elif (target := tensors.get(node.target, node.target)) in takes and any(
            isinstance(one, float) for one in (*node.args, *node.kwargs.values())
        ):
            with module.graph.inserting_before(node):
                node.args = tuple(map(register_number, node.args))
                node.kwargs = {name: register_number(one) for name, one in node.kwargs.items()}
            node.target = target
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _from_the_first(axes: Any, rank: int) -> Any:
    """One axis or several, none of them negative."""
    if isinstance(axes, list):
        return [_from_the_first(axis, rank) for axis in axes]
    return axes + rank if isinstance(axes, int) and axes < 0 else axes


@contextmanager
def _quietly() -> Iterator[None]:
    """What torch remarks about itself while it exports is nothing to users."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


# ---- functions that runtimes lack in float64 -----------------------------------------------------


def _spelled_out() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    own: dict[Any, Callable[..., Any]] = {
        aten.gelu.default: _gelu,
        aten.erf.default: _erf,
        aten.where.self: _where,
        aten._native_batch_norm_legit_no_training.default: _batch_norm,
        aten.lerp.Tensor: _lerp,
    }
    composed = (
        *(aten.native_layer_norm, aten.linalg_vector_norm, aten.elu, aten.leaky_relu),
        *(aten.hardtanh, aten.silu, aten.softplus, aten.log_sigmoid_forward),
    )
    return {**torch._decomp.get_decompositions(composed), **own}


def _where(condition: Tensor, first: Tensor, second: Tensor) -> Any:
    """Of truth values by what runtimes know of these."""
    if first.dtype is second.dtype is torch.bool:
        return (condition & first) | (~condition & second)
    return NotImplemented


def _lerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """From whichever end is nearer, so that it is exact at both."""
    way = end - start
    return torch.where(weight.abs() < 0.5, start + weight * way, end - way * (1 - weight))


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    least: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """After training: with the mean and variance that it found."""

    def along(values: Tensor) -> Tensor:
        return values.reshape(-1, *(1 for _ in x.shape[2:]))

    scale = torch.rsqrt(variance + least)
    scale = scale if weight is None else scale * weight
    result = (x - along(mean)) * along(scale)
    result = result if bias is None else result + along(bias)
    return result, x.new_empty(0), x.new_empty(0)


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + torch.tanh(inner))
    tail = 0.5 * _upper_tail(x.abs() * 0.7071067811865476)
    return x * torch.where(x < 0, tail, 1 - tail)


def _erf(x: Tensor) -> Tensor:
    inside = 1 - _upper_tail(x.abs())
    return torch.where(x < 0, -inside, inside)


def _upper_tail(t: Tensor) -> Tensor:
    """erfc(t) for t >= 0: exp(-t^2) / (1 + 2 t) times a Chebyshev series in (t - c) / (t + c)."""
    # the far end gives zero anyway, and infinity would give no number
    t = t.clamp(max=FAR)
    u = (t - CENTRE) / (t + CENTRE)
    double, *rest = 2 * u, *reversed(erfc_series().coefficients)
    later, now = torch.zeros_like(u), torch.zeros_like(u)
    for coefficient in rest[:-1]:
        later, now = now, double * now - later + coefficient
    return (u * now - later + rest[-1]) * torch.exp(-t * t) / (1 + 2 * t)


class ErfcSeries(NamedTuple):
    """A Chebyshev series for erfc(t) of t >= 0, for runtimes without an error function.

    With u = (t - centre) / (t + centre), erfc(t) is exp(-t^2) / (1 + 2 t) times the series of
    these `coefficients` in u, to 3e-15; `t` must be at most `largest`, beyond which erfc is 0.
    """

    centre: float
    largest: float
    coefficients: tuple[float, ...]


@cache
def erfc_series() -> ErfcSeries:
    """The series for (1 + 2 t) exp(t^2) erfc(t), which is smooth in u up to infinity."""

    def compute_scaled_erfc(u: Array) -> Array:
        t = CENTRE * (1 + u) / (1 - u)
        return np.asarray(erfcx(t) * (1 + 2 * t))

    coefficients: Any = chebyshev.chebinterpolate(compute_scaled_erfc, DEGREE)
    return ErfcSeries(CENTRE, FAR, tuple(float(one) for one in coefficients))
