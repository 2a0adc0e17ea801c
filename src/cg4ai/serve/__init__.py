"""A finished run behind HTTP: predictions, explanations, its card, health and metrics."""
