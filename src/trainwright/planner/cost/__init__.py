"""From steps to runs: time lost, money, energy, lengths by scaling laws; and the cost of serving."""
