"""Formulas with numbers put in, for each number of a plan."""
