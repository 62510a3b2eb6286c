"""Bytes that a forward pass keeps for its backward pass, tensor by tensor, as this project's modules keep them."""
