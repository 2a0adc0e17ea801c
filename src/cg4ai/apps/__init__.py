"""The three applications: tables, routing and digits."""
