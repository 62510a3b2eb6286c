"""What devices cost to rent, and where that stands."""
