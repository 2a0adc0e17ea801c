"""Pricers: given the master's duals, find members that improve the mixture."""

from cg4ai.pricing.reduced_cost import PriceTerms, price_terms, reduced_costs

__all__ = ["PriceTerms", "price_terms", "reduced_costs"]
