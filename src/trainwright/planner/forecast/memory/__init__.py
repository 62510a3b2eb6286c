"""Bytes at the peak: states, activations, offload."""
