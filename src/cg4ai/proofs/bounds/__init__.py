"""Sound bounds of a mixture over cells of a region, and the search that splits them."""
