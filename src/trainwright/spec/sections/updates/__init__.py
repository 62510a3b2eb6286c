"""The keys of what updates weights: the rule, and its rate over time."""
