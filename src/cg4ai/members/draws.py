"""A number in [0, 1) for each input, which makes shares of votes one decision per input.

The number is a keyed hash of the input, so that it is the same in every process, on every machine
and in every version, and as good as random from one input to another:

    bytes   the input as float64, little-endian, in the order of its features, with -0.0 as 0.0
    key     the seed as 8 bytes, little-endian, unsigned
    number  the first 8 bytes of BLAKE2b (8 bytes long, with this key), little-endian, without
            its lowest 11 bits, divided by 2**64

The class decided for is found from the last class downwards: the first at which the sum of shares
so far exceeds the number. Of two classes that is the second if its share exceeds it.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray


def draws(inputs: Array, seed: int) -> Array:
    """(n, d) -> (n,): the number of each input."""
    if not 0 <= seed < 2**64:
        raise InvalidInput(f"the seed of decisions must lie in 0 to 2**64 - 1, got {seed}")
    rows = np.ascontiguousarray(np.asarray(inputs, np.float64) + 0.0, dtype="<f8")
    data, size, key = rows.tobytes(), rows.itemsize * rows.shape[1], seed.to_bytes(8, "little")
    digests = b"".join(
        blake2b(data[start : start + size], digest_size=8, key=key).digest()
        for start in range(0, len(data), size)
    )
    return np.asarray((np.frombuffer(digests, "<u8") >> np.uint64(11)) / 2.0**53)


def decisions(shares: Array, inputs: Array, seed: int) -> IntArray:
    """Shares of votes (n, r) at inputs (n, d) -> (n,) the class decided for."""
    open_ = np.flatnonzero(shares.max(1) < 1.0 - 1e-12)  # the others are unanimous
    decided = shares.argmax(1)
    if len(open_):
        down = np.cumsum(shares[open_, ::-1], axis=1)
        down[:, -1] = np.inf  # shares sum to one but for rounding
        first = (down > draws(inputs[open_], seed)[:, None]).argmax(1)
        decided[open_] = shares.shape[1] - 1 - first
    return np.asarray(decided, np.int64)
