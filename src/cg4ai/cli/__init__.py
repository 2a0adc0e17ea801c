"""The command `cg4ai`: those that train in training.py, a file for each other one."""
