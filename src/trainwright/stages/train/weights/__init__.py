"""Weights beside those that are trained."""
