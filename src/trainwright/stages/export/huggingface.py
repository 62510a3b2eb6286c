"""A Hugging Face directory that ``transformers`` and every server that reads its format can load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trainwright.artifact.store import Artifact, write_atomically
from trainwright.model import hf
from trainwright.model.decoder import Decoder
from trainwright.spec.recipe import Recipe
from trainwright.stages.export.card import model_card


def write(directory: Path, model: Decoder, *, recipe: Recipe, trained: Artifact, dtype: torch.dtype) -> None:
    """Write weights, configuration, tokenizer, generation settings and a model card.

    Raises:
        RecipeError: the shape has no form there.
        MachineError: the disk is full.
    """
    tokenizer = (trained.path / "tokenizer.json").read_bytes()
    end = recipe.data.tokenizer.end_of_text
    end_id = Tokenizer.from_buffer(tokenizer).token_to_id(end)
    ends = {"bos_token_id": end_id, "eos_token_id": end_id}
    hf.write(directory, model.spec, dict(model.named_parameters()), dtype=dtype, extra=ends)
    write_atomically(directory / "tokenizer.json", tokenizer)
    _write_json(
        directory / "tokenizer_config.json",
        {
            "bos_token": end,
            "clean_up_tokenization_spaces": False,
            "eos_token": end,
            "model_max_length": model.spec.context_tokens,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": None,
        },
    )
    _write_json(directory / "generation_config.json", ends)
    card = model_card(recipe, model.spec, summary=trained.summary, dtype=recipe.export.dtype)
    write_atomically(directory / "README.md", card.encode())


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n")
