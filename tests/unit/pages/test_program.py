"""Packed programs run in a browser: the same numbers as the ensembles they are of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from browser import chromium
from cg4ai.ensemble.export import export_program
from cg4ai.errors import InvalidInput
from cg4ai.pages.page import render_page
from cg4ai.pages.program import array_data, pack_program
from raising import raises

X = np.random.default_rng(0).normal(size=(25, 4))


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, compute: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, inputs: Tensor) -> Any:
        return self.compute(inputs)


INDEX = torch.tensor([[2, 0], [1, 3]])
WEIGHT = torch.as_tensor(np.random.default_rng(1).normal(size=(3, 4, 5)))


def _put(x: Tensor) -> Tensor:
    made = torch.zeros(x.shape[0], 6, dtype=x.dtype)
    made[:, [1, 4]] = x[:, :2] * 3
    return made


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "arithmetic": lambda x: (x + 2 * x.flip(1) - 3) / (1.5 + x.abs()) * x[:, :1],
    "activations": lambda x: torch.cat([x.relu(), x.tanh(), x.sigmoid(), x.exp(), x.log1p()], 1),
    "gelu": lambda x: nn.functional.gelu(8 * x),
    "erf": lambda x: torch.erf(5 * x),
    "smooth": lambda x: torch.cat([nn.functional.softplus(9 * x), nn.functional.silu(x)], 1),
    "comparisons": lambda x: torch.where((x > 0.3) | ~(x.floor() <= -1), x, -x.square()).clamp(-1),
    "not finite": lambda x: torch.where(x.log().isnan(), torch.tensor(7.0), (x / 0).clamp(max=9)),
    "reductions": lambda x: torch.stack([x.sum(1), x.mean(1), x.amax(1), x.amin(1), x.prod(1)], 1),
    "truth": lambda x: torch.cat([(x > 0).any(1, keepdim=True), (x > 0).all(1, keepdim=True)], 1),
    "softmax": lambda x: torch.cat([x.softmax(1), x.log_softmax(1)], 1),
    "products": lambda x: torch.baddbmm(x[None, :, :1], x.expand(3, -1, -1), WEIGHT).flatten(1),
    "orders": lambda x: torch.cat([x.sort(1).values, x.topk(2, 1).values, x.cumsum(1)], 1),
    "places": lambda x: torch.cat([x.argmax(1, keepdim=True), x.sort(1).indices], 1),
    "indices": lambda x: torch.cat(
        [x[:, INDEX].flatten(1), x[:, [3, 0]], x.gather(1, INDEX[:1])], 1
    ),
    "written": _put,
    "shapes": lambda x: x.reshape(-1, 2, 2).transpose(1, 2).flatten(1)[:, 1:4:2],
    "joined": lambda x: nn.functional.pad(torch.cat([x, x[:, 1:3]], 1), (1, 2), value=0.5),
    "scattered": lambda x: torch.zeros(1, 3, dtype=x.dtype).scatter_reduce(
        1, torch.tensor([[0, 2, 2, 0]]), x, "amax"
    ),
    "added": lambda x: torch.zeros(1, 3, dtype=x.dtype).index_add(1, torch.tensor([0, 2, 2, 1]), x),
    "rounded": lambda x: torch.cat([(4 * x).round(), (4 * x).ceil(), x.sign(), x % 0.7], 1),
    "split": lambda x: torch.cat([part * 2 for part in x.split([1, 3], 1)][::-1], 1),
    "several": lambda x: (x + 1, x.norm(dim=1), x.square().sum(1).sqrt().rsqrt()),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


def opened(browser: Any, folder: Path, data: Any, *scripts: str) -> None:
    file = folder / "page.html"
    file.write_text(render_page("test", "", scripts=scripts, data=data), encoding="utf-8")
    browser.get(file.as_uri())


RUN = """
const data = JSON.parse(document.getElementById("data").textContent);
const inputs = arguments[0];
const named = one => Number.isFinite(one) ? one : String(one);
return Object.fromEntries(Object.entries(data).map(([name, program]) => {
  const run = cg4ai.program(program);
  return [name, inputs.map(x => run(x).map(out => Array.from(out, named)))];
}));
"""


def numbers(values: Any) -> NDArray[np.float64]:
    return np.array([float(str(one).replace("Infinity", "inf")) for one in values])


def test_every_operation_gives_what_torch_gives(browser: Any, tmp_path: Path) -> None:
    programs = {
        name: pack_program(export_program(Of(compute), X.shape[1], rows=1))
        for name, compute in FUNCTIONS.items()
    }
    opened(browser, tmp_path, programs, "program.js")
    found = browser.execute_script(RUN, X.tolist())
    for name, compute in FUNCTIONS.items():
        for x, got in zip(X, found[name], strict=True):
            expected = compute(torch.as_tensor(x)[None])
            expected = expected if isinstance(expected, tuple) else (expected,)
            for one, other in zip(expected, got, strict=True):
                np.testing.assert_allclose(
                    numbers(other),
                    one.double().numpy().reshape(-1),
                    rtol=1e-13,
                    atol=1e-14,
                    err_msg=name,
                )


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.1, 1e-300], [-1e300, np.pi]]),
        np.array([1.5, -2.25, 1e30], np.float32),
        np.where(np.arange(500) % 50 == 0, np.linspace(-1, 1, 500), 0.0).reshape(20, 25),
        np.arange(7),
        np.array(3.5),
        np.array([True, False]),
        np.array([np.inf, -np.inf]),
    ],
)
def test_arrays_come_back_to_the_bit(browser: Any, tmp_path: Path, array: NDArray[Any]) -> None:
    opened(browser, tmp_path, array_data(array), "program.js")
    found = browser.execute_script(
        'const data = JSON.parse(document.getElementById("data").textContent);'
        "return [data.shape, Array.from(cg4ai.array(data), String)];"
    )
    assert found[0] == list(array.shape)
    np.testing.assert_array_equal(numbers(found[1]), array.reshape(-1).astype(np.float64))


def test_what_does_not_depend_on_inputs_is_no_step() -> None:
    weight = torch.eye(4, dtype=torch.float64)
    data = pack_program(export_program(Of(lambda x: x @ (weight * 2 + 1).exp().T), 4, rows=1))
    assert [step["do"] for step in data["steps"]] == ["mm"]
    json.dumps(data, allow_nan=False)


def test_an_unknown_operation_is_named() -> None:
    with raises(InvalidInput, "unsupported", "--onnx"):
        pack_program(export_program(Of(lambda x: torch.linalg.svdvals(x)), 4, rows=1))
