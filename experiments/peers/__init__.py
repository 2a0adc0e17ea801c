"""Ours beside other methods for hard rules, each on the problems of its own paper."""
