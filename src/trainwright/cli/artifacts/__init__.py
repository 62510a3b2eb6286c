"""Commands about what runs have made."""
