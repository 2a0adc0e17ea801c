"""Which magnitudes the checker works with: beyond these, proofs about rounding would not hold.

Within them no product or sum of float64 inference overflows unless the checker's own do, and all
that underflow can lose is below `UNDERFLOW`. docs/mathematics.md has the argument.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.errors import Rejected

# Eight times the unit roundoff: once for the checker's sums, once for those of inference.
UNIT = 2.0**-50
LARGEST = 1e60  # any number of a certificate
SMALLEST_SCALE = 1e-60  # what inputs may be divided by
LARGEST_SUM = 1e100  # any sum inside a member, anywhere in the region
UNDERFLOW = 1e-80  # more than underflow can take from a bound
LARGEST_PRODUCT = 2**23  # numbers of one matrix product, 64 MiB, or the bytes of both factors
SMALLEST_FACTOR = 1e-150  # the product of two such numbers is not zero


def within_scale(array: NDArray[Any], name: str, *, least: float = -LARGEST) -> None:
    """Rejected unless all numbers are finite and lie between `least` and `LARGEST`."""
    if not ((array >= least) & (array <= LARGEST)).all():
        worst = array[~((array >= least) & (array <= LARGEST))].flat[0]
        raise Rejected(
            f"{name} holds {worst}: numbers must be finite and within {least:g} and {LARGEST:g}, "
            "beyond which rounding is not bounded here",
            code="not-finite",
        )


def factors(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    """The numbers in float64; Rejected unless products of two of them neither over- nor underflow.

    Infinite ends of ranges are no factors: leave them out.
    """
    if array.dtype.kind not in "fiub":
        raise Rejected(f"{name} must hold numbers, got the dtype {array.dtype}")
    found: NDArray[np.float64] = array.astype(np.float64)
    within_scale(found, name)
    small = (found != 0) & (np.abs(found) < SMALLEST_FACTOR)
    if small.any():
        raise Rejected(
            f"{name} holds {found[small].flat[0]:.3g}: numbers other than 0 must be at least "
            f"{SMALLEST_FACTOR:g} in size, below which products vanish",
            code="range",
        )
    return found


def refuse_large(left: NDArray[Any], right: NDArray[Any], *, least: int = 0) -> None:
    """Rejected if `left @ right` takes far more memory than its factors, as of thin matrices.

    Up to `least` numbers, such as the bytes of a file, are allowed in any case.
    """
    count = left.shape[0] * right.shape[1]
    if count > max(LARGEST_PRODUCT, left.nbytes + right.nbytes, least):
        raise Rejected(
            f"a product of {left.shape[0]} rows and {right.shape[1]} columns exceeds "
            f"{LARGEST_PRODUCT} numbers and the bytes it is made of, too many to be checked",
            code="memory",
        )
