"""Networks, their files, and instances: demands with the paths that they may use."""
