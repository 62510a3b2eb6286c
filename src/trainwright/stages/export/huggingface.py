"""A Hugging Face directory that ``transformers`` and every server that reads its format can load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trainwright.artifact.model_folder import TOKENIZER, TOKENIZER_CONFIG
from trainwright.artifact.store import Artifact, write_atomically
from trainwright.core.paths import read_object
from trainwright.model import hf
from trainwright.model.bundle import load_bundle
from trainwright.model.chats.answers import ChatEncoder
from trainwright.model.chats.template import ChatTemplate
from trainwright.model.conventions import read_chat_template, read_special_tokens
from trainwright.model.network import Network
from trainwright.spec.recipe import Recipe
from trainwright.stages.export.card import model_card
from trainwright.stages.export.exporter import Logits


class HuggingFace:
    """The exporter ``huggingface``."""

    def write(
        self, directory: Path, network: Network, *, recipe: Recipe, trained: Artifact, dtype: torch.dtype
    ) -> None:
        """Write weights, configuration, tokenizer, generation settings and a model card.

        Raises:
            RecipeError: the shape has no form there.
            MachineError: the disk is full.
        """
        tokenizer = (trained.path / TOKENIZER).read_bytes()
        end = recipe.data.tokenizer.end_of_text
        end_id = Tokenizer.from_buffer(tokenizer).token_to_id(end)
        ends = {"bos_token_id": end_id, "eos_token_id": end_id}
        chats, told = _chats(trained.path), {}
        if chats is not None:
            chats.write(directory)
            answer_end = ChatEncoder(Tokenizer.from_buffer(tokenizer), chats).end_id()
            ends["eos_token_id"] = end_id if answer_end is None else answer_end
            told = dict(chats.special_tokens)
        extra: dict[str, Any] = dict(ends)
        if network.spec.classes:
            # The padding token says to Hugging Face which token of a padded text is the last.
            names = dict(enumerate(network.spec.labels or recipe.task.labels))
            extra |= {"id2label": names, "label2id": {name: n for n, name in names.items()}, "pad_token_id": end_id}
        hf.write(directory, network.spec, dict(network.named_parameters()), dtype=dtype, extra=extra)
        write_atomically(directory / TOKENIZER, tokenizer)
        _write_json(
            directory / "tokenizer_config.json",
            {
                "bos_token": end,
                "clean_up_tokenization_spaces": False,
                "eos_token": end,
                "model_max_length": network.spec.context_tokens,
                "tokenizer_class": "PreTrainedTokenizerFast",
                "unk_token": None,
            }
            | ({"pad_token": end} if network.spec.classes else {})
            | told,
        )
        if network.spec.makes_logits:
            _write_json(directory / "generation_config.json", ends)
        card = model_card(
            recipe,
            network.spec,
            summary=trained.summary,
            pretrained="base" in trained.manifest.inputs or recipe.model.init_from is not None,
            dtype=recipe.export.dtype,
        )
        write_atomically(directory / "README.md", card.encode())

    def read(self, directory: Path) -> Logits:
        """Returns the logits of the network that the directory holds."""
        network, _ = load_bundle(directory)
        return lambda tokens: network.logits(network(tokens))


def _chats(trained: Path) -> ChatTemplate | None:
    """Returns the chat template of a model that was tuned on chats, or None."""
    settings = trained / TOKENIZER_CONFIG
    text = read_chat_template(trained) if settings.is_file() else None
    if text is None:
        return None
    return ChatTemplate(text=text, source=str(trained), special_tokens=read_special_tokens(read_object(settings)))


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n")
