"""Entries of the catalogue: devices, models, software, prices."""
