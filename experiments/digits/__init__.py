"""The paper's experiments on digits: `python -m experiments.digits`."""
