"""The command `cg4ai`: those that train in runs.py, a file for each other one."""
