"""From the problem a user states to one that is solved: a file for each transformation."""
