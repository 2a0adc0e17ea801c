"""ONNX models and programs of torch: the same numbers as `predict`, for any number of inputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from test_export import CASES, X
from torch import Tensor, nn

from cg4ai.ensemble import export
from cg4ai.ensemble.export import ThetaModule, build_onnx_model, compute_difference, export_program
from cg4ai.errors import InvalidInput
from raising import raises

pytestmark = pytest.mark.filterwarnings("ignore::cg4ai.errors.OutsideRegion")
pytest.importorskip("onnxruntime")
QUICK = ("shielded",)  # GELU networks behind a shield
LONGER = [name for name in CASES if name not in QUICK]


def check(name: str) -> None:
    ensemble = CASES[name]()
    model = build_onnx_model(ensemble, names=("x", "y"), columns={"inputs": ["a", "b", "c"]})
    for count in (1, 2, len(X)):
        assert compute_difference(ensemble, model, X[:count]) < 1e-13
    session = pytest.importorskip("onnxruntime").InferenceSession(model)
    (nothing,) = session.run(None, {"x": X[:0]})
    assert nothing.shape == (0, ensemble.output_size)
    read = pytest.importorskip("onnx").load_from_string(model)
    assert [one.name for one in (*read.graph.input, *read.graph.output)] == ["x", "y"]
    assert {one.key: json.loads(one.value) for one in read.metadata_props} == {
        "inputs": ["a", "b", "c"]
    }


@pytest.mark.parametrize("name", QUICK)
def test_models_give_what_predict_gives(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize("name", LONGER)
def test_models_of_all_kinds_give_what_predict_gives(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.guard
def test_single_precision_is_close_and_smaller(tmp_path: Path) -> None:
    ensemble = CASES["probabilities"]()
    double = ensemble.export_onnx(tmp_path / "double.onnx")
    single = ensemble.export_onnx(tmp_path / "single.onnx", precision="float32")
    assert compute_difference(ensemble, double.read_bytes(), X) < 1e-15
    assert 1e-10 < compute_difference(ensemble, single.read_bytes(), X) < 1e-5
    assert single.stat().st_size < double.stat().st_size
    with raises(InvalidInput, "unknown-name", "precision"):
        ensemble.export_onnx(tmp_path / "half.onnx", precision="float16")  # type: ignore[arg-type]
    assert not (tmp_path / "half.onnx").exists()


class Scaled(nn.Module):
    """Numbers that 32 bits do not hold, next to products of matrices."""

    def __init__(self) -> None:
        super().__init__()
        made = torch.Generator().manual_seed(0)
        for name, shape in (("first", (1, 4, 5)), ("second", (1, 5, 3))):
            weight = torch.randn(*shape, dtype=torch.float64, generator=made)
            self.register_buffer(name, weight)

    def forward(self, inputs: Tensor) -> Tensor:
        inner = torch.bmm(inputs[None], self.get_buffer("first")) * 0.123456789012345
        return ((inner + 1e-11) @ self.get_buffer("second"))[0] - 0.987654321098765


def test_no_number_is_rounded_or_left_out_on_the_way() -> None:
    """Neither by torch, which writes numbers of graphs in 32 bits and drops those near 0, nor by
    onnxruntime, which does so where it fuses products.
    """
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    module = Scaled()
    exact = export_program(export._exact(export_program(module, 4)), 4)
    model = export._converted(exact, ("inputs", "outputs"))
    export.expand_scalar_factors(model.graph, onnx)
    inputs = np.random.default_rng(0).normal(size=(50, 4))
    session = runtime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {"inputs": inputs})
    expected = module(torch.as_tensor(inputs)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_numbers_beyond_single_precision_stay_finite() -> None:
    """Limits of outputs are clamped at 1e100, which was a warning and infinity."""
    onnx = pytest.importorskip("onnx")
    values = np.array([1e100, -1e100, np.inf, -np.inf, 0.1, 0.0])
    graph = onnx.GraphProto()
    graph.initializer.append(onnx.numpy_helper.from_array(values, "limits"))
    export._lowered(graph, onnx)
    most = np.finfo(np.float32).max
    found = onnx.numpy_helper.to_array(graph.initializer[0])
    expected = np.array([most, -most, np.inf, -np.inf, 0.1, 0.0], np.float32)
    np.testing.assert_array_equal(found, expected)


def test_the_error_function_is_as_exact_as_doubles() -> None:
    t = torch.cat([torch.linspace(-7, 7, 2001, dtype=torch.float64), torch.tensor([40.0, -1e300])])
    assert (export._erf(t) - torch.erf(t)).abs().max() < 5e-15
    gelu = nn.functional.gelu(t[:2001])
    assert (export._gelu(t[:2001]) - gelu).abs().max() < 5e-14
    steep = nn.functional.gelu(t[:2001], approximate="tanh")
    assert (export._gelu(t[:2001], "tanh") - steep).abs().max() < 1e-14


def test_a_program_has_theta_beside_the_outputs() -> None:
    ensemble = CASES["shielded"]()
    program = export_program(ThetaModule(ensemble.as_module()), ensemble.input_size)
    outputs, theta = program.module()(torch.as_tensor(X))
    np.testing.assert_allclose(outputs.numpy(), ensemble.predict(X), rtol=0, atol=1e-12)
    np.testing.assert_allclose(theta.numpy(), ensemble.theta(torch.as_tensor(X)), atol=1e-12)
    assert (theta > 0).any()
