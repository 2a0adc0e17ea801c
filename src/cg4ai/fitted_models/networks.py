"""Networks of scikit-learn, torch and ONNX as members: linear layers with one activation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from cg4ai.errors import InvalidInput
from cg4ai.extras import import_optional
from cg4ai.fitted_models.model import SINGLE, FittedModel
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers
from cg4ai.records import Array

ONNX_KINDS = "Gemm, MatMul, Add, Relu, Tanh, Softmax and Sigmoid"
PASSED = ("Identity", "Cast", "Flatten", "Dropout")


@dataclass
class _Layers:
    """Linear layers (out, in) with biases, what stands between them, and how they end."""

    weights: list[Array] = field(default_factory=list)
    biases: list[Array] = field(default_factory=list)
    activations: list[str] = field(default_factory=list)
    end: str = "linear"

    def build(self, words: str) -> NetworkMembers:
        kinds = set(self.activations)
        if not self.weights or len(kinds) > 1 or len(self.activations) != len(self.weights) - 1:
            raise InvalidInput(
                f"{words} must be linear layers with the same activation between any two",
                code="unsupported",
            )
        weights, biases, output = list(self.weights), list(self.biases), self.end
        if output == "sigmoid":
            if len(biases[-1]) != 1:
                raise InvalidInput(
                    f"{words} ends in {len(biases[-1])} sigmoids; one is supported",
                    code="unsupported",
                )
            weights[-1] = np.concatenate([np.zeros_like(weights[-1]), weights[-1]])
            biases[-1], output = np.concatenate([[0.0], biases[-1]]), "softmax"
        made = NetworkArchitecture(
            weights[0].shape[1],
            len(biases[-1]),
            hidden=tuple(len(one) for one in biases[:-1]),
            activation=self.activations[0] if self.activations else "relu",  # type: ignore[arg-type]
            output="softmax" if output == "softmax" else "linear",
        )
        parameters: dict[str, Any] = {}
        for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            parameters[f"weight_{number}"] = np.asarray(weight, np.float64)[None]
            parameters[f"bias_{number}"] = np.asarray(bias, np.float64)[None]
        return NetworkMembers(made, parameters)


def read_mlp(model: Any) -> NetworkMembers:
    """A fitted MLPClassifier or MLPRegressor."""
    name = type(model).__name__
    if not hasattr(model, "coefs_"):
        raise InvalidInput(f"{name} is not fitted; call fit(X, y) first", code="unsupported")
    if model.activation not in ("relu", "tanh", "identity"):
        raise InvalidInput(
            f"{name} with activation={model.activation!r} is not supported; use 'relu' or 'tanh'",
            code="unsupported",
        )
    weights = [one.T for one in model.coefs_]
    biases = list(model.intercepts_)
    if model.activation == "identity":
        whole, start = weights[0], biases[0]
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            whole, start = weight @ whole, weight @ start + bias
        weights, biases = [whole], [start]
    ends = {"identity": "linear", "softmax": "softmax", "logistic": "sigmoid"}
    activations = [model.activation] * (len(weights) - 1)
    return _Layers(weights, biases, activations, ends[model.out_activation_]).build(name)


def read_torch(module: Any) -> FittedModel:
    """An `nn.Sequential` of linear layers with one kind of ReLU, GELU or Tanh between them."""
    from torch import nn

    found = _Layers()
    for layer in _flat(module):
        if isinstance(layer, nn.Linear):
            bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias
            found.weights.append(layer.weight.detach().double().cpu().numpy())
            found.biases.append(bias.detach().double().cpu().numpy())
        elif isinstance(layer, nn.Softmax):
            found.end = "softmax"
        elif isinstance(layer, nn.Sigmoid):
            found.end = "sigmoid"
        elif isinstance(layer, nn.ReLU | nn.Tanh) or (
            isinstance(layer, nn.GELU) and layer.approximate == "none"
        ):
            found.activations.append(type(layer).__name__.lower())
        elif not isinstance(layer, nn.Identity | nn.Dropout | nn.Flatten):
            raise InvalidInput(
                f"a torch model with a layer {type(layer).__name__} is not supported: use an "
                "nn.Sequential of Linear with ReLU, GELU or Tanh, and Softmax or Sigmoid at the "
                "end",
                code="unsupported",
            )
    first = next(iter(module.parameters()), torch.zeros(1))
    words = f"{type(module).__name__} of torch {torch.__version__}"

    def answer(inputs: Array) -> Array:
        was = module.training
        module.eval()
        try:
            with torch.no_grad():
                x = torch.as_tensor(inputs, dtype=first.dtype, device=first.device)
                return _pairs(module(x).double().cpu().numpy(), found.end)
        finally:
            module.train(was)

    unit = 2.0**-53 if first.dtype == torch.float64 else SINGLE
    return _network(words, found.build(words), answer, found.end, unit)


def _flat(module: Any) -> list[Any]:
    from torch import nn

    if not isinstance(module, nn.Sequential):
        return [module]
    return [layer for one in module for layer in _flat(one)]


def _pairs(answers: Array, end: str) -> Array:
    return np.column_stack([1 - answers, answers]) if end == "sigmoid" else answers


def _network(
    words: str, members: NetworkMembers, answer: Any, end: str, unit: float
) -> FittedModel:
    features = tuple(map(str, range(members.input_size)))
    outputs = tuple(map(str, range(members.output_size)))
    return FittedModel(words, members, features, outputs, end != "linear", answer, answer, unit)


def read_onnx(content: bytes) -> FittedModel:
    """A chain of linear layers and activations; trees of ONNX-ML are refused."""
    onnx = import_optional("onnx")
    runtime = import_optional("onnxruntime")
    try:
        model = onnx.load_model_from_string(content)
        session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:  # both raise classes of their own
        first = (str(error).strip().splitlines() or [""])[0]
        raise InvalidInput(
            f"this ONNX model cannot be loaded: {first[:200]}", code="bad-file"
        ) from error
    numpy = onnx.numpy_helper
    known = {one.name: numpy.to_array(one) for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            known[node.output[0]] = numpy.to_array(node.attribute[0].t)
    found = _Layers()
    for node in model.graph.node:
        _add_node(found, node, known)
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise InvalidInput(
            f"this ONNX model has {len(inputs)} inputs; one is supported", code="unsupported"
        )
    double = inputs[0].type == "tensor(double)"
    kind = np.float64 if double else np.float32
    words = f"ONNX model of {model.producer_name or 'an unnamed producer'}"

    def answer(given: Array) -> Array:
        size = inputs[0].shape[0]
        rows = given.astype(kind)
        parts = [rows] if not isinstance(size, int) else np.split(rows, len(rows) // size)
        done = [session.run(None, {inputs[0].name: part})[0] for part in parts]
        return _pairs(np.concatenate(done).astype(np.float64), found.end)

    unit = 2.0**-53 if double else SINGLE
    return _network(words, found.build(words), answer, found.end, unit)


def _add_node(found: _Layers, node: Any, known: dict[str, Array]) -> None:
    kind = node.op_type
    options = {one.name: one for one in node.attribute}
    constants: Sequence[Array] = [known[name] for name in node.input if name in known]
    if kind == "Constant" or kind in PASSED:
        return
    if kind == "Gemm" and len(constants) >= 1:
        turned = "transB" in options and options["transB"].i == 1
        scale = options["alpha"].f if "alpha" in options else 1.0
        share = options["beta"].f if "beta" in options else 1.0
        weight = scale * (constants[0] if turned else constants[0].T).astype(np.float64)
        bias = np.zeros(len(weight))
        if len(constants) > 1:
            bias = bias + share * np.ravel(constants[1]).astype(np.float64)
        found.weights.append(weight)
        found.biases.append(bias)
    elif kind == "MatMul" and len(constants) == 1 and node.input[1] in known:
        found.weights.append(constants[0].T.astype(np.float64))
        found.biases.append(np.zeros(len(found.weights[-1])))
    elif kind == "Add" and len(constants) == 1 and len(found.biases) > len(found.activations):
        found.biases[-1] = found.biases[-1] + np.ravel(constants[0]).astype(np.float64)
    elif kind in ("Relu", "Tanh"):
        found.activations.append(kind.lower())
    elif kind in ("Softmax", "Sigmoid"):
        found.end = kind.lower()
    else:
        raise InvalidInput(
            f"an ONNX model with the operator {kind} is not supported; known are {ONNX_KINDS} of a "
            "network",
            code="unsupported",
        )
