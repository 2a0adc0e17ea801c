"""A routing run as people read it: terminal, report, explorer."""
