"""Encoders of text: every token sees both sides of it; what stands on them fills gaps or tells classes."""
