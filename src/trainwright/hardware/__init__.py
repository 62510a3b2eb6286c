"""Hardware: the catalogue of devices, their prices, this machine's facts and its probes. No torch."""
