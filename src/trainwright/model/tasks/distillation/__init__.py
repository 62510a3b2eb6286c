"""Distillation: a network learns what a frozen one, its teacher, says of each token."""
