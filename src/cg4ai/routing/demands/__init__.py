"""Sets of demand vectors, and measured traffic."""
