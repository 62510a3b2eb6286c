"""Training by several commands, of one rank or of a host's ranks each: they meet, agree, and begin again together."""
