"""Prices of rented devices, and their sources."""
