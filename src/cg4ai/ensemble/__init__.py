"""The trained product: a mixture with its shield, its audits, and claims with their strength."""
