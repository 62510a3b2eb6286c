"""Which documents are kept, and in which form."""
