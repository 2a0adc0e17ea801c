"""Bands against the curves themselves on dense grids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfc, expit

from cg4ai_checker import bands

CURVES = {
    "relu": (bands.relu, lambda t: np.maximum(t, 0)),
    "tanh": (bands.tanh, np.tanh),
    "gelu": (bands.gelu, lambda t: t * 0.5 * erfc(-t / np.sqrt(2))),
    "sigmoid": (bands.sigmoid, expit),
    "softplus": (bands.softplus, lambda t: np.logaddexp(0, t)),
}


@pytest.mark.parametrize("name", CURVES)
@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    low=st.one_of(st.floats(-6, 6), st.floats(-1e4, 1e4)),
    width=st.one_of(st.just(0.0), st.floats(1e-12, 1e-6), st.floats(0, 4), st.floats(0, 2e4)),
)
def test_the_curve_stays_within_its_band(name, low, width):
    make, curve = CURVES[name]
    band = make(np.array([low]), np.array([low + width]))
    t = np.linspace(low, low + width, 3001)
    above = curve(t) - band.slope * t
    slack = 1e-13 * (1 + np.abs(t))  # rounding of this test's own sums
    assert (band.floor <= above + slack).all()
    assert (above <= band.ceiling + slack).all()


@pytest.mark.parametrize("name", CURVES)
def test_bands_are_as_narrow_as_curvature_allows(name):
    make, curve = CURVES[name]
    low = np.linspace(-12, 12, 481)  # far out, slopes round to 0 or 1
    band = make(low, low + 0.02)
    width = band.ceiling - band.floor
    # |curvature| is at most 0.8 away from relu's corner: 0.02^2 / 8 * 0.8 and a little
    smooth = (low > 0) | (low + 0.02 < 0) if name == "relu" else np.ones(len(low), bool)
    assert width[smooth].max() < 1.3e-4
    wide = make(np.array([-30.0]), np.array([30.0]))
    spread = np.ptp(curve(np.linspace(-30, 30, 9)))
    assert wide.ceiling[0] - wide.floor[0] < 1.1 * spread


def test_gelu_band_is_the_exact_range_for_its_slope():
    low, high = np.array([-2.0, -1.0, -0.3]), np.array([1.0, 3.0, 0.4])
    band = bands.gelu(low, high)
    for k in range(len(low)):
        t = np.linspace(low[k], high[k], 200_001)
        above = t * 0.5 * erfc(-t / np.sqrt(2)) - band.slope[k] * t
        assert band.floor[k] == pytest.approx(above.min(), abs=1e-7)
        assert band.ceiling[k] == pytest.approx(above.max(), abs=1e-10)


@pytest.mark.parametrize("name", CURVES)
def test_what_is_no_number_never_becomes_one(name):
    make, _ = CURVES[name]
    with np.errstate(invalid="ignore"):
        band = make(np.array([np.nan, 0.0]), np.array([1.0, 1.0]))
    assert np.isnan(band.ceiling[0]) or np.isnan(band.slope[0])
    assert np.isfinite(band.ceiling[1])
