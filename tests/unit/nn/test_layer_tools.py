"""Layers work with what torch has for models: checkpoints, compilers, exporters, processes."""

from __future__ import annotations

import copy
import io
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cg4ai.nn import Completion, OutputSet, SequentialWithInput, Shield, rule_layer, shield
from cg4ai.rules import (
    AffineBound,
    Box,
    Equality,
    Largest,
    Linear,
    Ordered,
    Quadratic,
    Range,
    SumTo,
)

REGION = Box([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
CAP = Linear(None, [1.0, 1.0], 1.0, "<=", name="cap")
DISC = Quadratic(None, np.eye(2), 0.8, name="disc")
TILTED = Linear(REGION, [1.0, 1.0], AffineBound(0.5, [1.0, 0.0, 0.0]), "<=", name="tilted")
PIECES = Linear(
    REGION, [1.0, 1.0], Largest([AffineBound(0.5, [1.0, 0.0, 0.0]), 1.0]), "<=", name="pieces"
)
BALANCE = Equality(None, [1.0, 1.0], AffineBound(0.0, [1.0, 0.0, 0.0]), name="balance")


def missed_cap(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(y.sum(-1) - 1, y.square().sum(-1) - 0.8)


def missed_tilt(x: Tensor, y: Tensor) -> Tensor:
    return y.sum(-1) - 0.5 - x[:, 0]


def missed_pieces(x: Tensor, y: Tensor) -> Tensor:
    return y.sum(-1) - (0.5 + x[:, 0]).clamp_min(1.0)


def missed_shares(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum((y[:, :-1] - y[:, 1:]).amax(-1), (y.sum(-1) - 1).abs() - 1e-6)


def missed_range(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(0.1 - y, y - 0.7).amax(-1)


def missed_balance(x: Tensor, y: Tensor) -> Tensor:
    return (y.sum(-1) - x[:, 0]).abs() - 1e-6


Missed = Callable[[Tensor, Tensor], Tensor]
LAYERS: dict[str, tuple[Callable[[], nn.Module], int, Missed]] = {
    "shield": (lambda: Shield([CAP, DISC]), 2, missed_cap),
    "tilted": (lambda: Shield(TILTED), 2, missed_tilt),
    "pieces": (lambda: Shield(PIECES), 2, missed_pieces),
    "shares": (lambda: OutputSet([SumTo(1.0), Ordered()], output_size=4), 4, missed_shares),
    "range": (lambda: OutputSet(Range(0.1, 0.7), output_size=3), 3, missed_range),
    "balance": (lambda: Completion(BALANCE), 1, missed_balance),
}
each_layer = pytest.mark.parametrize("name", list(LAYERS))


def model(name: str) -> nn.Module:
    torch.manual_seed(0)
    layer, width, _ = LAYERS[name]
    body = nn.Linear(3, width)
    nn.init.normal_(body.weight, std=3.0)
    return SequentialWithInput(body, nn.Tanh(), nn.Linear(width, width), layer())


def inputs(count: int, seed: int = 1) -> Tensor:
    return torch.rand(count, 3, generator=torch.Generator().manual_seed(seed))


def check_kept(name: str, x: Tensor, y: Tensor) -> None:
    assert LAYERS[name][2](x.double(), y.double()).max() <= 0


@each_layer
def test_checkpoints_and_copies(name: str, tmp_path: Path) -> None:
    own, x = model(name), inputs(40)
    wanted = own(x)
    check_kept(name, x, wanted)
    torch.save(own.state_dict(), tmp_path / "own.pt")
    other = model(name)
    with torch.no_grad():
        for one in other.parameters():
            one.add_(1.0)
    assert not torch.equal(other(x), wanted)
    other.load_state_dict(torch.load(tmp_path / "own.pt", weights_only=True))
    assert torch.equal(other(x), wanted)
    for made in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        assert torch.equal(made(x), wanted)
        assert made.state_dict().keys() == own.state_dict().keys()


def test_a_checkpoint_of_other_rules_is_refused() -> None:
    own = nn.Sequential(nn.Linear(3, 2), Shield(CAP))
    other = nn.Sequential(nn.Linear(3, 2), Shield(Linear(None, [1.0, 1.0], 2.0, "<=", name="cap")))
    with pytest.raises(RuntimeError, match="other rules than this Shield"):
        other.load_state_dict(own.state_dict())
    ranges = OutputSet(Range(0.0, 1.0), output_size=2)
    with pytest.raises(RuntimeError, match="other rules than this OutputSet"):
        ranges.load_state_dict(OutputSet(Range(0.0, 2.0), output_size=2).state_dict())


def test_the_anchor_of_a_checkpoint_is_proven_again() -> None:
    own, other = Shield(CAP, anchor=[0.1, 0.2]), Shield(CAP)
    other.load_state_dict(own.state_dict())
    none = torch.full((1, 2), torch.nan, dtype=torch.float64)
    assert torch.equal(other(none), torch.tensor([[0.1, 0.2]], dtype=torch.float64))
    assert other.room == own.room
    wrong = own.state_dict()
    wrong["anchor_offsets"] = torch.tensor([1.0, 1.0])
    with pytest.raises(RuntimeError, match="does not keep cap"):
        other.load_state_dict(wrong)
    assert other.room == own.room


@each_layer
def test_casts_change_the_body_and_leave_the_rules(name: str) -> None:
    x = inputs(30)
    for cast, out in (
        ("half", torch.float32),
        ("bfloat16", torch.float32),
        ("float", torch.float32),
        ("double", torch.float64),
    ):
        made: nn.Module = getattr(model(name), cast)()
        given = x.to(next(made.parameters()).dtype)
        y = made(given)
        assert y.dtype == out
        check_kept(name, given, y)
        assert all(one.dtype == torch.float64 for one in made.buffers() if one.is_floating_point())


@each_layer
def test_autocast(name: str) -> None:
    made, x = model(name), inputs(30)
    with torch.autocast("cpu", torch.bfloat16):
        y = made(x)
    assert y.dtype == torch.float32
    check_kept(name, x, y)


@each_layer
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of torch
def test_compiled_without_a_break(name: str) -> None:
    torch._dynamo.reset()
    own, x = model(name), inputs(25)
    made = torch.compile(own, backend="aot_eager", fullgraph=True)
    wanted = own(x)
    wanted.square().sum().backward()
    slopes = [one.grad.clone() for one in own.parameters()]
    own.zero_grad()
    y = made(x)
    y.square().sum().backward()
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-6)
    for one, slope in zip(own.parameters(), slopes, strict=True):
        torch.testing.assert_close(one.grad, slope, rtol=1e-4, atol=1e-5)
    check_kept(name, x, y)


@pytest.mark.slow
@pytest.mark.guard
@each_layer
@pytest.mark.filterwarnings("ignore")  # of the compiler about itself
def test_compiled_to_machine_code(name: str) -> None:
    torch._dynamo.reset()
    own, x = model(name), inputs(25)
    y = torch.compile(own, fullgraph=True)(x)
    torch.testing.assert_close(y, own(x), rtol=0, atol=1e-6)
    check_kept(name, x, y)


@each_layer
def test_exported_programs(name: str) -> None:
    own, x = model(name).eval(), inputs(5)
    program = torch.export.export(own, (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    new = inputs(300, seed=2)
    y = program.module()(new)
    assert torch.equal(y, own(new))
    check_kept(name, new, y)


@each_layer
def test_traced_and_saved(name: str) -> None:
    own, x = model(name).eval(), inputs(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer about shapes, and that it is deprecated
        traced = torch.jit.trace(own, (x,))
        stored = io.BytesIO()
        torch.jit.save(traced, stored)
        stored.seek(0)
        made = torch.jit.load(stored)
    new = inputs(300, seed=2)
    y = made(new)
    assert torch.equal(y, own(new))
    check_kept(name, new, y)


@pytest.mark.filterwarnings("ignore")  # of the exporter about itself
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one, marks=() if one == "shield" else (pytest.mark.slow, pytest.mark.guard))
        for one in LAYERS
    ],
)
def test_onnx(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    own, x = model(name).eval(), inputs(5)
    shapes = ({0: torch.export.Dim("n")},)
    program = torch.onnx.export(own, (x,), dynamo=True, verbose=False, dynamic_shapes=shapes)
    session = runtime.InferenceSession(
        program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    new = inputs(300, seed=2)
    (found,) = session.run(None, {session.get_inputs()[0].name: new.numpy()})
    y = torch.as_tensor(found)
    torch.testing.assert_close(y, own(new), rtol=0, atol=1e-5)
    check_kept(name, new, y)


def _train(rank: int, count: int, port: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=count)
    try:
        made = DistributedDataParallel(model("tilted"))
        optimiser = torch.optim.SGD(made.parameters(), 0.1)
        x = inputs(32, seed=rank)
        for _ in range(3):
            optimiser.zero_grad()
            (made(x) - 1).square().mean().backward()
            optimiser.step()
        torch.save(made.module.state_dict(), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


def _free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=(pytest.mark.slow, pytest.mark.guard))])
def test_several_processes(count: int, tmp_path: Path) -> None:
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch was built without gloo")
    if count == 1:
        _train(0, 1, _free_port(), str(tmp_path))
    else:
        mp.spawn(_train, (count, _free_port(), str(tmp_path)), nprocs=count)
    states = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(count)]
    for name, one in states[0].items():
        assert all(torch.equal(one, other[name]) for other in states)
    made = model("tilted")
    made.load_state_dict(states[0])
    x = inputs(200, seed=7)
    check_kept("tilted", x, made(x))


def test_on_a_device_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Apple's GPUs are: everything is computed in float32, within whose rounding rules hold."""
    monkeypatch.setattr(rule_layer, "working_dtype", lambda device: torch.float32)
    for module in ("shield", "output_set", "completion"):
        monkeypatch.setattr(f"cg4ai.nn.{module}.working_dtype", lambda device: torch.float32)
    for name in LAYERS:
        made = model(name)
        made.to("cpu")
        floats = [one.dtype for one in made.buffers() if one.is_floating_point()]
        assert set(floats) <= {torch.float32}
        x = inputs(400)
        check_kept(name, x, made(x))
    shield = Shield([CAP, DISC])
    assert shield._rounding(torch.float32, torch.float32).came
    near = torch.tensor([[0.5, 0.5 + 2**-24], [0.6, 0.4], [0.2, 0.3]])
    kept = shield(near)
    check_kept("shield", near, kept)
    assert torch.equal(kept[2], near[2])


def test_precision_comes_back_with_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Shield(Linear(None, [3.0, 7.0], 0.1, "<="), anchor=[1 / 300, 1 / 700])
    exact = layer.anchor_offsets.clone()
    with monkeypatch.context() as patch:
        for module in (rule_layer, shield):
            patch.setattr(module, "working_dtype", lambda device: torch.float32)
        layer._apply(lambda tensor: tensor)
        assert layer.anchor_offsets.dtype == torch.float32
    layer.to("cpu")
    assert torch.equal(layer.anchor_offsets, exact)


@each_layer
def test_made_under_another_default_device(name: str) -> None:
    """As libraries do that load large networks: without memory, which comes later."""
    x, wanted = inputs(30), model(name)
    layer, width, _ = LAYERS[name]
    with torch.device("meta"):
        made = SequentialWithInput(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), layer())
    made.to_empty(device="cpu").load_state_dict(wanted.state_dict())
    assert torch.equal(made(x), wanted(x))
    emptied = model(name).to_empty(device="cpu")
    emptied.load_state_dict({k: v for k, v in wanted.state_dict().items() if k[0] != "3"}, False)
    assert torch.equal(emptied(x), wanted(x))
    moved = model(name).to("meta")
    moved.load_state_dict(wanted.state_dict(), assign=True)
    assert torch.equal(moved(x), wanted(x))


@each_layer
def test_functional_transforms(name: str) -> None:
    own, x = model(name), inputs(20)
    values = dict(own.named_parameters())
    found = torch.func.grad(lambda w: torch.func.functional_call(own, w, (x,)).square().sum())(
        values
    )
    own(x).square().sum().backward()
    for key, one in own.named_parameters():
        torch.testing.assert_close(found[key], one.grad)


def test_used_first_for_predictions_and_then_trained() -> None:
    for name in LAYERS:
        own, x = model(name), inputs(20)
        with torch.inference_mode():
            own(x)
        own(x).square().sum().backward()
        assert all(torch.isfinite(one.grad).all() for one in own.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of NVIDIA's")
@each_layer
def test_on_a_gpu(name: str) -> None:
    own, x = model(name), inputs(3000)
    wanted = own(x)
    made = own.to("cuda")
    y = made(x.cuda())
    y.sum().backward()
    torch.testing.assert_close(y.cpu(), wanted, rtol=0, atol=1e-5)
    check_kept(name, x, y.cpu())
    assert torch.equal(made.to("cpu")(x), wanted)
