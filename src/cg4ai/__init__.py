"""Train models that keep hard rules."""

__version__ = "0.1.0"
