"""Networks that see images: one module for each kind, held to the ``Network`` protocol."""
