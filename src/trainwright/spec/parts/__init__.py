"""Records of parts: what a ``ModelSpec`` is made of beside its sizes, and what may stand beside its matrices."""
