"""Estimators in the manner of scikit-learn whose predictions keep rules."""
