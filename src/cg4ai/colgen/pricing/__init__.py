"""Pricers: given the master's duals, find members that improve the mixture."""
