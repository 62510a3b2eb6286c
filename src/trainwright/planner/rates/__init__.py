"""How fast devices work, from catalogues, probes and finished runs."""
