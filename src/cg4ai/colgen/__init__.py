"""Column generation: the loop, its state and what it ends with."""
