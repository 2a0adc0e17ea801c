"""Trained routers in operation: failures, exports, single answers, later traffic."""
