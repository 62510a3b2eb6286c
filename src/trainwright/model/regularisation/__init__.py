"""What training adds to a loss, and what it leaves out of a network, so that it learns no more than it should."""
