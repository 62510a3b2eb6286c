"""A step on a fake process group, rank by rank: what each would keep and send, counted while nothing is there."""
