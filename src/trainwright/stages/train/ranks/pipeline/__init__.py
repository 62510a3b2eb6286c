"""Pipelines: every rank has some blocks of the network, and micro batches pass through all ranks in turn."""
