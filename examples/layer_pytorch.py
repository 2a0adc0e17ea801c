"""A PyTorch loop of one's own, and a last layer by which spending never exceeds its budget.

Four channels share a budget, which is the first of three inputs. The data overspend now and then,
and so does a plain network that learns from them.

Run: python examples/layer_pytorch.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cg4ai.nn import SequentialWithInput, Shield
from cg4ai.rules import AffineBound, Box, Linear, Range

REGION = Box([1.0, 0.0, 0.0], [10.0, 1.0, 1.0])  # budget, season, price
RULES = [
    Linear(REGION, [1.0, 1.0, 1.0, 1.0], AffineBound(0.0, [1.0, 0.0, 0.0]), "<=", name="budget"),
    Range(0.0, None, name="nothing negative"),
]


def data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = REGION.sample(count, generator).float()
    liking = torch.stack([x[:, 1], 1 - x[:, 1], x[:, 2], 0.1 + 0 * x[:, 0]], 1)
    spent = x[:, :1] * (3 * liking).softmax(-1)
    return x, spent * (1 + 0.1 * torch.randn(spent.shape, generator=generator))


def body() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 4)]


def train(model: nn.Module, x: Tensor, y: Tensor) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        optimiser.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimiser.step()


def missed(x: Tensor, y: Tensor) -> Tensor:
    """By how much each row of outputs breaks the worst rule, in float64."""
    x, y = x.double(), y.double()
    return torch.maximum(y.sum(-1) - x[:, 0], -y.amin(-1))


def main() -> dict[str, float]:
    x, y = data(1000, seed=0)
    new, wanted = data(10_000, seed=1)
    plain = nn.Sequential(*body())
    shield = Shield(RULES, region=REGION)
    ruled = SequentialWithInput(*body(), shield)
    numbers: dict[str, float] = {}
    for name, model in (("plain", plain), ("ruled", ruled)):
        train(model, x, y)
        with torch.no_grad():
            found = model(new)
        broken = missed(new, found)
        numbers[f"{name}_broken"] = float((broken > 0).sum())
        numbers[f"{name}_worst"] = max(0.0, float(broken.max()))
        numbers[f"{name}_error"] = float(nn.functional.mse_loss(found, wanted))
        print(
            f"{name}: rules broken at {numbers[f'{name}_broken']:.0f} of {len(new):,} new inputs, "
            f"by {numbers[f'{name}_worst']:.3g} at most; error {numbers[f'{name}_error']:.4f}"
        )
    print(f"\n{shield.guarantee()}")
    return numbers


if __name__ == "__main__":
    main()
