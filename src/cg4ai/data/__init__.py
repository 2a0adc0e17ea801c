"""Data as users bring them: arrays that are checked, sparse matrices, rows read in batches."""
