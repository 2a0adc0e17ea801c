"""Anchors: predictors that keep rules on their whole region, found by small programs."""
