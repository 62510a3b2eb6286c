"""Tasks that read whole documents, each in a sequence of its own, and answer once for each."""
