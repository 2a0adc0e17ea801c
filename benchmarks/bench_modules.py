"""Torch modules of one's own under rules, beside the same modules trained by plain torch.

Three modules (a convolutional network, an LSTM over the rows of an image, a transformer block) on
the 8x8 digits of scikit-learn. Twenty training images must get their own class with probability
0.9 or more: twenty drawn at random (`drawn`), or the twenty of which a linear model is least sure
(`hardest`). Plain torch trains one module on all training images: Adam, the same batches, as many
passes and the same schedule, no rules. Prints test accuracy, processor seconds of one thread, how
many of the twenty are kept, and what the same fit reached before the rules were bound. `--tune`
measures on a part of the training images instead, so that choices never see the test images.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from cg4ai import ConstrainedClassifier
from cg4ai.report.tables import format_markdown
from cg4ai.rules import Probability

PASSES, BATCH, RATE = 60, 64, 0.01
RULES, SURE = 20, 0.9


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
        nn.Softmax(-1),
    )


class Recurrent(nn.Module):
    """An LSTM that reads an image row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = nn.LSTM(8, 48, batch_first=True)
        self.output = nn.Linear(48, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        states, _ = self.reader(inputs.reshape(-1, 8, 8))
        return torch.softmax(self.output(states[:, -1]), -1)


class Attending(nn.Module):
    """One transformer block over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.place = nn.Parameter(0.1 * torch.randn(8, 32))
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.output = nn.Linear(8 * 32, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.embed(inputs.reshape(-1, 8, 8)) + self.place
        return torch.softmax(self.output(self.block(rows).flatten(1)), -1)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "CNN": convolutional,
    "LSTM": Recurrent,
    "transformer": Attending,
}


@dataclass(frozen=True)
class Images:
    x: Any
    y: Any
    test_x: Any
    test_y: Any


@dataclass(frozen=True)
class Reached:
    accuracy: float
    seconds: float
    kept: int
    without: float = math.nan
    members: int = 1


def images(*, tune: bool) -> Images:
    x, y = load_digits(return_X_y=True)
    x, test_x, y, test_y = train_test_split(x / 16, y, test_size=0.3, random_state=0, stratify=y)
    if tune:
        x, test_x, y, test_y = train_test_split(x, y, test_size=0.3, random_state=0, stratify=y)
    return Images(x, y, test_x, test_y)


def listed(data: Images, which: str, seed: int) -> Any:
    if which == "drawn":
        return np.random.default_rng(seed).choice(len(data.x), RULES, replace=False)
    shares = LogisticRegression(C=0.1, max_iter=500).fit(data.x, data.y).predict_proba(data.x)
    return np.argsort(shares[np.arange(len(data.y)), data.y])[:RULES]


def kept(shares: Any, labels: Any) -> int:
    return int((shares[np.arange(len(labels)), labels] >= SURE - 1e-6).sum())


def plain_torch(make: Callable[[], nn.Module], data: Images, rules: Any, seed: int) -> Reached:
    started = time.process_time()
    torch.manual_seed(seed)
    module = make()
    x, y = torch.as_tensor(data.x, dtype=torch.float32), torch.as_tensor(data.y)
    steps = PASSES * math.ceil(len(x) / BATCH)
    adam = torch.optim.Adam(module.parameters(), RATE)
    rate = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=steps)
    for _ in range(PASSES):
        for batch in torch.randperm(len(x)).split(BATCH):
            adam.zero_grad()
            nn.functional.nll_loss(module(x[batch]).clamp_min(1e-12).log(), y[batch]).backward()
            adam.step()
            rate.step()
    seconds = time.process_time() - started
    module.eval()
    with torch.no_grad():
        shares = module(torch.as_tensor(data.test_x, dtype=torch.float32)).numpy()
        own = module(x[rules]).numpy()
    accuracy = float((shares.argmax(1) == data.test_y).mean())
    return Reached(accuracy, seconds, kept(own, data.y[rules]))


def ours(make: Callable[[], nn.Module], data: Images, rules: Any, seed: int) -> Reached:
    rule = Probability(data.x[rules], data.y[rules], at_least=SURE)
    model = ConstrainedClassifier(members=make, random_state=seed)
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.x, data.y, requirements=[rule])
    seconds = time.process_time() - started
    plain = model.result_.plain
    without = plain.ensemble.predict(data.test_x).argmax(1)
    return Reached(
        accuracy=model.score(data.test_x, data.test_y),
        seconds=seconds,
        kept=kept(model.predict_proba(data.x[rules]), data.y[rules]),
        without=float((model.classes_[without] == data.test_y).mean()),
        members=len(model.ensemble_),
    )


def row(name: str, which: str, data: Images, seeds: Sequence[int]) -> dict[str, Any]:
    make = MODULES[name]
    alone, mixed = [], []
    for seed in seeds:
        rules = listed(data, which, seed)
        alone.append(plain_torch(make, data, rules, seed))
        mixed.append(ours(make, data, rules, seed))
    cells = {
        "module": name,
        "images": which,
        "torch": _mean(alone, "accuracy"),
        "ours": _mean(mixed, "accuracy"),
        "ours, before the rules": _mean(mixed, "without"),
        "torch kept": _all(alone, "kept"),
        "ours kept": _all(mixed, "kept"),
        "members": _all(mixed, "members"),
        "torch (s)": f"{np.mean([one.seconds for one in alone]):.2f}",
        "ours (s)": f"{np.mean([one.seconds for one in mixed]):.2f}",
        "times": " ".join(
            f"{m.seconds / a.seconds:.1f}" for m, a in zip(mixed, alone, strict=True)
        ),
    }
    print(cells, flush=True)
    return cells


def _mean(reached: Sequence[Reached], name: str) -> str:
    return f"{np.mean([getattr(one, name) for one in reached]):.4f}"


def _all(reached: Sequence[Reached], name: str) -> str:
    return " ".join(str(getattr(one, name)) for one in reached)


def main() -> None:
    torch.set_num_threads(1)
    arguments = argparse.ArgumentParser(description="own modules under rules beside plain torch")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--modules", nargs="+", choices=list(MODULES), default=list(MODULES))
    arguments.add_argument("--images", nargs="+", default=["drawn", "hardest"])
    arguments.add_argument("--tune", action="store_true", help="measure on training images")
    given = arguments.parse_args()
    data = images(tune=given.tune)
    table = [
        row(name, which, data, range(given.seeds))
        for name in given.modules
        for which in given.images
    ]
    print(format_markdown(table))


if __name__ == "__main__":
    main()
