"""Measures a trained model on held-out text and places it beside compressors and n-grams."""
