"""Options and help of the commands that have many, one file each; `cg4ai.cli` lists them.

Nothing heavy is imported here, so that `cg4ai --help` answers at once.
"""
