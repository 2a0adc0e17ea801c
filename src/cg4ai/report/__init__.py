"""Reports on runs: live progress while one goes on, tables and plots of what was saved."""
