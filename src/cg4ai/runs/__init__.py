"""Run folders: sealed files, checkpoints, history; nothing in them is ever executed."""
