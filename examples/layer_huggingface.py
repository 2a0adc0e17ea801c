"""The Trainer of Hugging Face, and a last layer by which outputs stay under a limit of the input.

Needs the packages transformers and accelerate.

Run: python examples/layer_huggingface.py
"""

from __future__ import annotations

import tempfile

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments, set_seed

from cg4ai.nn import Shield
from cg4ai.rules import AffineBound, Box, Linear

REGION = Box([0.0, 0.0], [1.0, 1.0])
LIMIT = Linear(REGION, [1.0, 1.0], AffineBound(0.5, [1.0, 0.0]), "<=", name="limit")


class Limited(nn.Module):
    """Two outputs whose sum is at most 0.5 plus the first input; as Trainer calls models."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.GELU(), nn.Linear(32, 2))
        self.shield = Shield(LIMIT)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        outputs = self.shield(self.body(x), x)
        if labels is None:
            return {"logits": outputs}
        return {"loss": nn.functional.mse_loss(outputs, labels), "logits": outputs}


def data(count: int, seed: int) -> list[dict[str, Tensor]]:
    x = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed))
    y = torch.stack([x[:, 1], x.square().sum(-1)], 1)
    return [{"x": one, "labels": other} for one, other in zip(x, y, strict=True)]


def main() -> dict[str, float]:
    set_seed(0)
    model = Limited()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=20,
            per_device_train_batch_size=100,
            learning_rate=0.01,
            lr_scheduler_type="constant",
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        Trainer(model, arguments, train_dataset=data(1000, seed=0)).train()
    new = data(10_000, seed=1)
    x, y = (torch.stack([one[name] for one in new]) for name in ("x", "labels"))
    with torch.no_grad():
        outputs = model.eval()(x)["logits"]
    missed = outputs.double().sum(-1) - 0.5 - x.double()[:, 0]
    numbers = {
        "broken": float((missed > 0).sum()),
        "error": float((outputs - y).square().mean()),
    }
    print(
        f"the limit is broken at {numbers['broken']:.0f} of {len(new):,} new inputs; error "
        f"{numbers['error']:.4f}"
    )
    return numbers


if __name__ == "__main__":
    main()
