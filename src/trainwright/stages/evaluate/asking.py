"""Asks a model questions, in parts that an interrupted evaluation does not ask again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.store import write_atomically
from trainwright.core.fingerprint import digest
from trainwright.model.chats.template import read_template
from trainwright.model.generation.generate import complete
from trainwright.model.network import Network
from trainwright.spec.generation import Sampling
from trainwright.spec.recipe import Recipe
from trainwright.stages.evaluate.questions import read_questions, summary

PART = 64
"""Questions that are asked before their answers are kept."""


def ask(
    recipe: Recipe,
    model: Network,
    tokenizer: Tokenizer,
    chats: TokenDataset | None,
    *,
    out: Path,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Returns how many of the recipe's questions a model answers right.

    A question that leaves no room for an answer in the context is not asked, counts as answered by nothing, and is
    counted by itself.

    Args:
        recipe: says where the questions are and how an answer is made.
        model: writes text.
        tokenizer: the model's.
        chats: the dataset of chats that the model learnt from, by whose template it is asked; None: questions are
            texts that it continues.
        out: folder in which the answers of a part are kept until the evaluation is complete.
        progress: told of questions that are done, and of all.

    Raises:
        DataError: the questions cannot be read.
        TrainingError: the network computes no finite numbers.
    """
    section = recipe.evaluate
    assert section.questions is not None
    questions = read_questions(section.questions)
    prompts = encoded([question.text for question in questions], tokenizer, chats)
    fitting = [number for number, prompt in enumerate(prompts) if 0 < len(prompt) < model.spec.context_tokens]
    sampling = Sampling(
        max_tokens=section.max_new_tokens,
        temperature=section.temperature,
        seed=recipe.seed,
        stop=section.questions.stop,
    )
    said = [""] * len(questions)
    for begin in range(0, len(fitting), PART):
        numbers = fitting[begin : begin + PART]
        progress(begin, len(fitting))
        asked = [prompts[number] for number in numbers]
        kept = out / f".answers-{digest([asked, begin])[:16]}.json"
        for number, answer in zip(numbers, _kept(kept, model, tokenizer, asked, sampling), strict=True):
            said[number] = answer
    progress(len(fitting), len(fitting))
    return summary(questions, said) | {"too_long": len(questions) - len(fitting)}


def encoded(texts: Sequence[str], tokenizer: Tokenizer, chats: TokenDataset | None) -> list[list[int]]:
    """Returns the tokens of prompts; where there is a dataset of chats, each is asked by its template."""
    if chats is None:
        return [tokenizer.encode(text).ids for text in texts]
    render = read_template(str(chats.path), chats.tokenizer_path, end_of_text=chats.end_of_text).renderer()
    asked = (render([{"role": "user", "content": text}], True) for text in texts)
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in asked]


def _kept(
    part: Path, model: Network, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], sampling: Sampling
) -> list[str]:
    """Returns answers that an interrupted run was given, or asks now."""
    if part.is_file():
        kept: list[str] = json.loads(part.read_text(encoding="utf-8"))
        return kept
    answers = [answer.text for answer in complete(model, tokenizer, prompts, sampling)]
    write_atomically(part, json.dumps(answers).encode())
    return answers
