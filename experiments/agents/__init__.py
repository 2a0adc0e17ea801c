"""What local knowledge costs: agents that see their own demands, beside a router that sees all."""
