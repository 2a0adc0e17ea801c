"""Networks of one's own that end in layers of rules are certified, and the checker accepts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cg4ai
from cg4ai.ensemble.from_module import build_ensemble
from cg4ai.errors import InvalidInput
from cg4ai.nn import Completion, OutputSet, SequentialWithInput, Shield
from cg4ai.rules import (
    AffineBound,
    Box,
    Equality,
    Linear,
    Ordered,
    Quadratic,
    Range,
    SumTo,
)
from cg4ai_checker.command import main
from raising import raises

REGION = Box([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
CAP = Linear(None, [1.0, 1.0], 1.0, "<=", name="cap")
TILTED = Linear(REGION, [1.0, 1.0], AffineBound(0.5, [1.0, 0, 0]), "<=", name="tilted")
BALANCE = Equality(None, [1.0, 1.0], AffineBound(0.0, [1.0, 0, 0]), name="balance")
DISC = Quadratic(REGION, np.eye(2), 0.7, name="disc")
SHARES = SumTo(1.0, name="shares")


def body(outputs: int, activation: type[nn.Module] = nn.ReLU) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(3, 8), activation(), nn.Dropout(0.2), nn.Linear(8, outputs)]


CASES: dict[str, tuple[nn.Module, Any, Box | None]] = {
    "shield": (nn.Sequential(*body(2), Shield(CAP)), CAP, REGION),
    "its own region": (nn.Sequential(*body(2), Shield(CAP, region=REGION)), CAP, None),
    "tilted": (SequentialWithInput(*body(2, nn.GELU), Shield([TILTED, DISC])), TILTED, None),
    "quadratic": (SequentialWithInput(*body(2, nn.Tanh), Shield([TILTED, DISC])), DISC, None),
    "any body": (SequentialWithInput(*body(2, nn.SiLU), Shield(TILTED)), TILTED, None),
    "completion": (SequentialWithInput(*body(1), Completion(BALANCE)), BALANCE, None),
    "projected": (SequentialWithInput(*body(2), Completion(BALANCE)), BALANCE, None),
    "both": (
        SequentialWithInput(*body(2), Completion(BALANCE), Shield(TILTED, within=BALANCE)),
        BALANCE,
        None,
    ),
    "shares": (nn.Sequential(*body(4), OutputSet(SHARES, output_size=4)), SHARES, None),
    "softmax": (
        nn.Sequential(nn.Sequential(*body(2)), nn.Softmax(-1)),
        Linear(REGION, [1.0, 0.0], 0.9, "<=", name="unsure"),
        None,
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_a_network_is_certified_and_its_file_checked(name: str, tmp_path: Path) -> None:
    module, rule, region = CASES[name]
    found = cg4ai.certify(module, rule, region=region)
    assert found.status == "proven", found.note
    path = tmp_path / "network.cg4ai"
    cg4ai.write_certificate(
        path, module, requirement=rule, certification=found, region=region, title="a network"
    )
    assert main([str(path), "--quiet"]) == 0
    assert rule.name in str(cg4ai.check(path))


@pytest.mark.parametrize("name", list(CASES))
def test_what_is_certified_is_the_network(name: str) -> None:
    module, _, region = CASES[name]
    own = module.double().eval()
    x = REGION.sample(200, torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = build_ensemble(module, region or REGION).outputs(x)
        torch.testing.assert_close(found, own(x), rtol=1e-12, atol=1e-12)
    module.float()


def test_a_network_without_layers_of_rules_is_refuted() -> None:
    module = nn.Sequential(*body(2))
    found = cg4ai.certify(module, Linear(REGION, [1.0, 1.0], -5.0, "<=", name="low"))
    assert found.status == "refuted"
    point = torch.as_tensor(found.counterexample)
    with torch.no_grad():
        assert float(module.double().eval()(point[None]).sum()) > -5


def test_a_certificate_is_of_one_network(tmp_path: Path) -> None:
    module, other = (nn.Sequential(*body(2), Shield(CAP, anchor=[k, 0.0])) for k in (0.0, 0.1))
    found = cg4ai.certify(module, CAP, region=REGION)
    with pytest.raises(InvalidInput, match="another mixture"):
        cg4ai.write_certificate(
            tmp_path / "one", other, requirement=CAP, certification=found, region=REGION
        )


def test_what_cannot_be_certified() -> None:
    module = nn.Sequential(*body(2), Shield(CAP))
    with raises(InvalidInput, "missing-argument"):
        cg4ai.certify(module, CAP)
    with raises(InvalidInput, "type"):
        cg4ai.certify(nn.Sequential(*module, nn.Linear(2, 2)), TILTED)
    with raises(InvalidInput, "type", "Bilinear"):
        cg4ai.certify(nn.Bilinear(3, 3, 2), TILTED)
    with pytest.raises(InvalidInput, match="shield keeps"):
        cg4ai.certify(module, DISC)
    order = Ordered(name="order")
    ranged = nn.Sequential(*body(2), OutputSet(Range(0.0, 1.0), output_size=2))
    assert cg4ai.certify(ranged, order).status == "unknown"
