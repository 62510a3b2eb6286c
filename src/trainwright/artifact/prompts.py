"""Whether a prompt and its answer fit into a context: asked before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.artifact.tokenizer import load_tokenizer
from trainwright.core.errors import RecipeError
from trainwright.spec.sections.base import Section


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


def length_problems(section: Section, key: str, *, where: str, context_tokens: int) -> Iterator[RecipeError]:
    """Yields why no answer can have the length that a section's key asks for; the default is cut to what fits."""
    length = getattr(section, key)
    if key in section.model_fields_set and length >= context_tokens:
        yield RecipeError(
            "no answer is so long: the context holds prompt and answer",
            where=f"{where}.{key}",
            seen=length,
            expected=f"below model.context_tokens ({context_tokens})",
        )
