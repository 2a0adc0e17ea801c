"""The command `cg4ai`: train and route in training.py, a file for each other command."""
