"""The product: a mixture with its shield, and what is claimed about it and how strongly."""
