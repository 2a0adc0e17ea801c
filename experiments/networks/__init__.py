"""Networks as operators have them: whole matrices of the SNDlib networks."""
