"""PyTorch Lightning, and a last layer by which shares sum to one and none exceeds its limit.

Needs the package lightning.

Run: python examples/layer_lightning.py
"""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from cg4ai.nn import OutputSet
from cg4ai.rules import Range, SumTo

RULES = [SumTo(1.0, name="shares"), Range(0.0, 0.5, name="none above a half")]


class Shares(lightning.LightningModule):  # type: ignore[misc]
    """Shares of three options, from four features."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3), OutputSet(RULES, output_size=3)
        )

    def forward(self, x: Tensor) -> Tensor:
        shares: Tensor = self.network(x)
        return shares

    def training_step(self, batch: Any, number: int) -> Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    return x, (2 * x[:, :3]).softmax(-1)


def main() -> dict[str, float]:
    lightning.seed_everything(0)
    model = Shares()
    trainer = lightning.Trainer(
        max_epochs=20,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(*data(1000, seed=0)), batch_size=100, shuffle=True))
    x, y = data(10_000, seed=1)
    with torch.no_grad():
        shares = model.eval()(x).double()
    numbers = {
        "largest": float(shares.max()),
        "least": float(shares.min()),
        "sum_missed": float((shares.sum(-1) - 1).abs().max()),
        "error": float((shares - y).square().mean()),
    }
    print(
        f"shares from {numbers['least']:.3f} to {numbers['largest']:.3f}, sums within "
        f"{numbers['sum_missed']:.1g} of 1; error {numbers['error']:.4f}"
    )
    return numbers


if __name__ == "__main__":
    main()
