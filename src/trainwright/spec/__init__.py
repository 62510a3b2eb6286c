"""The nouns: frozen, keyword-only, no I/O. ``recipe`` is their file format; everything else is arithmetic on them."""
