"""One model in place of a mixture, measured: against brute force, on digits and on a network."""
