"""What a ``ModelSpec`` is made of beside its sizes, one record for each part of a network."""
