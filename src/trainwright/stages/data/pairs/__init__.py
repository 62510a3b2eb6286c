"""Texts that belong together: how they are cleaned, how they become tokens."""
