"""Mixtures of experts: routing, products in groups, what balances the load."""
