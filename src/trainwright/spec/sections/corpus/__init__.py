"""The keys of what a corpus is read from."""
