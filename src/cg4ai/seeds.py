"""One seed per job, so that serial, parallel and resumed runs train the same members."""

from __future__ import annotations

import zlib

import numpy as np
import torch


def derive_seed(seed: int, iteration: int, job: str) -> int:
    """A seed for one named job of one iteration of a run."""
    sequence = np.random.SeedSequence([seed, iteration, zlib.crc32(job.encode())])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int) -> torch.Generator:
    """A CPU generator, the same on every device: samples are drawn on CPU and moved."""
    made = torch.Generator()
    made.manual_seed(seed)
    return made
