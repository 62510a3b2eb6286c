"""What networks need of precisions that are not always there; each module is loaded where it is asked for."""
