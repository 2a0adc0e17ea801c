"""Pricers that prove how much any member of their class could improve."""
