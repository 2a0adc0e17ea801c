"""Reports: one HTML page for each run, made from its folder alone, and one for a folder of runs."""
