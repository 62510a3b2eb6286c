"""Batches of other sizes, and ahead of training."""
