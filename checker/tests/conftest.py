"""Property tests try the same examples in every run, so that a suite that passed passes again."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.load_profile("same")
