"""Text generation: sampling, the key/value engine, and text from tokens while they come."""
