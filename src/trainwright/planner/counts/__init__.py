"""What models hold and compute, counted: parameters, operations, traffic, what is kept for the backward pass."""
