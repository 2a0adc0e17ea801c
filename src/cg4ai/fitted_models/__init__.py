"""Fitted models of other libraries: read exactly, audited, repaired."""
