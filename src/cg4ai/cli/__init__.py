"""The command `cg4ai`: one file per command, its options beside its work."""
