"""Devices, nodes, links, models, stacks and what they reach: the packaged data files, read."""
