"""How many parameters a model has, by component; equal to the real module's count (tests hold it to that)."""

from __future__ import annotations

from trainwright.spec.model import ModelSpec


def parameter_counts(model: ModelSpec) -> dict[str, int]:
    """Parameters of each component, over all layers.

    Returns:
        ``embedding``, ``positions``, ``attention``, ``feed_forward``, ``norms`` and ``head``; a tied head has none.
    """
    width, queries, keys = model.width, model.heads * model.head_size, model.kv_heads * model.head_size
    attention = width * (2 * queries + 2 * keys)
    feed_forward = (3 if model.gated else 2) * width * model.ffn_width
    if model.bias:
        attention += queries + 2 * keys + width
        feed_forward += (2 if model.gated else 1) * model.ffn_width + width
    norm = width * (2 if model.norm == "layernorm" else 1)
    return {
        "embedding": model.vocabulary * width,
        "positions": model.context_tokens * width if model.positions == "learned" else 0,
        "attention": model.layers * attention,
        "feed_forward": model.layers * feed_forward,
        "norms": (2 * model.layers + 1) * norm,
        "head": 0 if model.tied else model.vocabulary * width,
    }


def total_parameters(model: ModelSpec) -> int:
    """All parameters, a shared matrix counted once."""
    return sum(parameter_counts(model).values())


def block_matrices(model: ModelSpec) -> tuple[tuple[int, int], ...]:
    """(outputs, inputs) of each matrix in one block: what Muon updates."""
    width, queries, keys = model.width, model.heads * model.head_size, model.kv_heads * model.head_size
    up = ((model.ffn_width, width),) * (2 if model.gated else 1)
    return ((queries, width), (keys, width), (keys, width), (width, queries), *up, (width, model.ffn_width))


def block_matrix_parameters(model: ModelSpec) -> int:
    """Parameters in the matrices of all blocks."""
    return model.layers * sum(rows * columns for rows, columns in block_matrices(model))
