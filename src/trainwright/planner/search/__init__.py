"""Search: the layouts, devices, counts and prices on which a run is fastest or cheapest."""
