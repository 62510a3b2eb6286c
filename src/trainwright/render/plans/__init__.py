"""Plans: on this machine, on a cluster, for serving, for a budget, swept, recommended."""
