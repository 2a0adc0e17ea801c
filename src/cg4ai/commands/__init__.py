"""What the commands do, one file each, imported only when its command runs.

Names, options and help are in `cg4ai.cli` and `cg4ai.options`.
"""
