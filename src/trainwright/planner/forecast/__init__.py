"""Time and memory of many layouts on one cluster, as arrays."""
