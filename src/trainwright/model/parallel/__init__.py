"""A network that several ranks share: the one ordered function that cuts it, and its cut into pipeline stages."""
