"""The paper's routing configurations: `python -m experiments.routing`."""
