"""What the documents report, made again: baselines, and the paper's method, tables and figures."""
