"""What the commands do, one file each; `cg4ai.cli` imports a file only when its command runs."""
