"""Where the rules of an ensemble are meant to hold, and which inputs lie outside of that.

Plain data in `ensemble.about["regions"]`, so it is saved and loaded with it; an ensemble that was
not trained here has the regions of its shield and of what is certified about it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput, OutsideRegion, did_you_mean
from cg4ai.records import Array
from cg4ai.rules.regions import Ball, Box, Region, region_of

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble
    from cg4ai.rules import Requirement

REGIONS = "regions"
GUARANTEES = "guarantees"
MODES = ("warn", "refuse", "ignore")
MOST = 0.5  # a region with a smaller share of the training inputs is a neighbourhood

# requirements by name, each with the regions in which it is known to be meant
ByRequirement = dict[str, list[Region]]


def record_regions(
    ensemble: Ensemble, requirements: Sequence[Requirement], *, inputs: Array
) -> None:
    """Note the regions of all rules that are meant to hold wherever the ensemble is used.

    These are the regions that hold most of the training `inputs` (n, d). Of a rule about a
    neighbourhood, such as a ball around one input, nobody expects anything elsewhere.
    """
    places = [(one.name, one.region) for one in requirements]
    ensemble.about[REGIONS] = [
        {"requirement": name, "region": region.record()}
        for name, region in places
        if isinstance(region, Box | Ball) and region.contains(inputs).mean() > MOST
    ]


def known_regions(ensemble: Ensemble) -> ByRequirement:
    """What is recorded, and what the guards of a shield keep."""
    records = ensemble.about.get(REGIONS)
    if records is None:
        claims = ensemble.about.get(GUARANTEES, [])
        records = [claim for claim in claims if "region" in claim]
    regions: ByRequirement = {}
    try:
        for record in records:
            region = region_of(record["region"])
            if region.size != ensemble.input_size:
                raise InvalidInput(f"{region}, the ensemble takes {ensemble.input_size} inputs")
            regions.setdefault(record["requirement"], []).append(region)
    except (KeyError, TypeError, AttributeError, InvalidInput) as error:
        raise InvalidInput(
            f"a region in about[{REGIONS!r}] or about[{GUARANTEES!r}] cannot be read ({error}); "
            "train or certify again"
        ) from error
    for guard in getattr(ensemble, "guards", ()):
        regions.setdefault(guard.name, []).append(guard.region)
    return regions


class Outside:
    """Which inputs some rule of an ensemble says nothing about; read anew when claims change."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self._of: tuple[Any, Any] | None = None
        self._regions: ByRequirement = {}
        self.warned = False

    def regions(self) -> ByRequirement:
        about = self.ensemble.about
        current = (about.get(REGIONS), about.get(GUARANTEES))
        # recording makes new lists, so lists that are the same say the same
        if self._of is None or any(a is not b for a, b in zip(self._of, current, strict=True)):
            self._regions, self._of = known_regions(self.ensemble), current
        return self._regions

    def look(self, inputs: Array, outside: str) -> None:
        """Warn of inputs outside, once, or refuse them; called by `Ensemble.predict` alone."""
        if outside not in MODES:
            hint = did_you_mean(str(outside), MODES)
            raise InvalidInput(f"outside must be one of {', '.join(MODES)}, got {outside!r}{hint}")
        if outside == "ignore" or (outside == "warn" and self.warned):
            return
        beyond = self.mask(inputs)
        if not beyond.any():
            return
        text = (
            f"{beyond.sum()} of {len(inputs)} inputs, the first at position {beyond.argmax()}, "
            f"lie outside the region in which {' and '.join(self.regions())} shall hold: nothing "
            "is guaranteed there"
        )
        if outside == "refuse":
            raise InvalidInput(f'{text}; leave them out, or predict with outside="ignore"')
        self.warned = True
        warnings.warn(
            f'{text}; said once, predict(..., explain=True) marks them, outside="refuse" refuses',
            OutsideRegion,
            stacklevel=3,
        )

    def mask(self, inputs: Array) -> NDArray[np.bool_]:
        """(n, d) -> (n,)."""
        x = torch.as_tensor(inputs)
        kept = np.ones(len(inputs), bool)
        for regions in self.regions().values():
            kept &= reduce(or_, (region.near(x) for region in regions)).numpy()
        return ~kept
