"""What is proven about routers: certificates, ratios to the optimum, unroutable sets."""
