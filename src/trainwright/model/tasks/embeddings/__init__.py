"""Embeddings: texts that belong together come to lie near each other."""
