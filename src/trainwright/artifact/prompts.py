"""Whether a prompt fits into a context, in the tokens of a tokenizer.json: asked before anything is trained."""

from __future__ import annotations

from pathlib import Path

from trainwright.artifact.tokenizer import load_tokenizer


def prompt_problem(prompt: str, tokenizer: Path | None, *, context_tokens: int) -> str | None:
    """Returns why a prompt cannot be completed, or None.

    Args:
        prompt: the text.
        tokenizer: the tokenizer.json that will read it; None where it is not there yet: only an empty prompt is
            refused then.
        context_tokens: what prompt and answer have to fit into.

    Raises:
        DataError: the tokenizer cannot be read.
    """
    if not prompt:
        return "an empty prompt cannot be completed"
    if tokenizer is None:
        return None
    count = len(load_tokenizer(tokenizer).encode(prompt).ids)
    if count < context_tokens:
        return None
    return f"this prompt has {count} tokens, and the context of {context_tokens} holds prompt and answer"
