"""How a checkpoint is copied, written beside training by every rank, kept, and read in any layout."""
