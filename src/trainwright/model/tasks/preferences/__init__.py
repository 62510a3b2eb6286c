"""Preferring one of two answers: how pairs lie in sequences, losses, and what the first network said."""
