"""Optimal power flow (DC model): from loads to dispatches that keep all limits, on users' grids."""
