"""Members trained by gradient descent, many at a time."""
