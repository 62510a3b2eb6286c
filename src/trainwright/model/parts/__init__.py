"""Parts of a network that blocks are made of, one module for each."""
