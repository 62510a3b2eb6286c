"""A Hugging Face directory that ``transformers`` and every server that reads its format can load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from trainwright.artifact.model_folder import (
    IMAGE_PROCESSOR,
    TARGET_SCALE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    read_target_scale,
)
from trainwright.artifact.store import Artifact, write_atomically
from trainwright.core.paths import read_object
from trainwright.model import hf
from trainwright.model.bundle import load_network
from trainwright.model.chats.answers import ChatEncoder
from trainwright.model.chats.template import ChatTemplate
from trainwright.model.conventions import read_chat_template, read_special_tokens
from trainwright.model.network import Network
from trainwright.model.tasks.masked import MASKS
from trainwright.spec.families.family import huggingface_config
from trainwright.spec.model import ModelSpec
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import EmbedSection
from trainwright.stages.export.card import model_card
from trainwright.stages.export.exporter import Logits, outputs_of
from trainwright.stages.export.sentence_transformers import write_sentence_transformers


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
        if network.spec.sees_images:
            write_images(directory, network, recipe=recipe, trained=trained, dtype=dtype)
            return
        stored = (trained.path / TOKENIZER).read_bytes()
        end, tokenizer = recipe.data.tokenizer.end_of_text, Tokenizer.from_buffer(stored)
        end_id = tokenizer.token_to_id(end)
        ends = {"bos_token_id": end_id, "eos_token_id": end_id}
        chats, told = _chats(trained.path), {}
        if chats is not None:
            chats.write(directory)
            answer_end = ChatEncoder(tokenizer, chats).end_id()
            ends["eos_token_id"] = end_id if answer_end is None else answer_end
            told = dict(chats.special_tokens)
        extra: dict[str, Any] = dict(ends)
        if network.spec.classes or network.spec.kind == "encoder":
            # The padding token says to Hugging Face which tokens of a padded text are none; a family may have its own.
            form = huggingface_config(network.spec, where="export")
            own = form.get("pad_token_id")
            extra["pad_token_id"] = end_id if own is None else own
        if network.spec.classes:
            extra |= _outputs(network.spec, recipe, trained)
        if recipe.task.kind.problem_type is not None:
            extra["problem_type"] = recipe.task.kind.problem_type
        settings: dict[str, Any] = {
            "bos_token": end,
            "clean_up_tokenization_spaces": False,
            "eos_token": end,
            "model_max_length": network.spec.context_tokens,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": None,
        }
        if "pad_token_id" in extra:
            settings["pad_token"] = tokenizer.id_to_token(extra["pad_token_id"])
        if network.spec.kind == "encoder":
            stored, roles = for_encoder(tokenizer, end)
            settings |= roles
        settings |= told
        hf.write(directory, network.spec, dict(network.stored()), dtype=dtype, extra=extra)
        write_atomically(directory / TOKENIZER, stored)
        _write_json(directory / "tokenizer_config.json", settings)
        if network.spec.writes_text:
            _write_json(directory / "generation_config.json", ends)
        if isinstance(recipe.task, EmbedSection):
            how, texts = recipe.task, recipe.train.sequence_tokens // recipe.data.texts
            pooler = "add_pooling_layer" in huggingface_config(network.spec, where="export")
            write_sentence_transformers(directory, how, width=network.spec.width, text_tokens=texts, pooler=pooler)
        _write_card(directory, network, recipe=recipe, trained=trained)

    def read(self, directory: Path) -> Logits:
        """Returns the logits of the network that the directory holds."""
        network = load_network(directory)
        return lambda tokens: outputs_of(network, tokens)


def write_images(directory: Path, network: Network, *, recipe: Recipe, trained: Artifact, dtype: torch.dtype) -> None:
    """Write a network of images: weights, configuration with the classes, image processor and model card.

    Raises:
        RecipeError: the shape has no form there.
        MachineError: the disk is full.
    """
    hf.write(directory, network.spec, dict(network.stored()), dtype=dtype, extra={})
    write_atomically(directory / IMAGE_PROCESSOR, trained.file(IMAGE_PROCESSOR).read_bytes())
    _write_card(directory, network, recipe=recipe, trained=trained)


def _outputs(spec: ModelSpec, recipe: Recipe, trained: Artifact) -> dict[str, Any]:
    """Returns what a head's outputs are called; of one that tells a number, in which scale it does."""
    names = dict(enumerate(spec.labels or recipe.task.labels or ("LABEL_0",)))
    scaled: dict[str, Any] = {}
    if recipe.task.kind.makes == "number":
        scale = read_target_scale(trained.file(TARGET_SCALE).parent)
        scaled = {"target_mean": scale.mean, "target_std": scale.std}
    return {"id2label": names, "label2id": {name: number for number, name in names.items()}} | scaled


def _write_card(directory: Path, network: Network, *, recipe: Recipe, trained: Artifact) -> None:
    card = model_card(
        recipe,
        network.spec,
        summary=trained.summary,
        pretrained="base" in trained.manifest.inputs or recipe.model.init_from is not None,
        dtype=recipe.export.dtype,
    )
    write_atomically(directory / "README.md", card.encode())


def _chats(trained: Path) -> ChatTemplate | None:
    """Returns the chat template of a model that was tuned on chats, or None."""
    settings = trained / TOKENIZER_CONFIG
    text = read_chat_template(trained) if settings.is_file() else None
    if text is None:
        return None
    return ChatTemplate(text=text, source=str(trained), special_tokens=read_special_tokens(read_object(settings)))


def for_encoder(tokenizer: Tokenizer, end: str) -> tuple[bytes, dict[str, str]]:
    """Returns the file of a tokenizer that puts an encoder's first and last token around a text, and their names.

    They are those of the tokenizer itself where it has some; else the token between documents stands at both ends.
    """
    framed = Tokenizer.from_str(tokenizer.to_str())
    around = framed.encode("").ids
    first, last = (framed.id_to_token(token) or end for token in around) if len(around) == 2 else (end, end)
    if len(around) != 2:
        tokens = [(end, framed.token_to_id(end))]
        framed.post_processor = TemplateProcessing(single=f"{end} $A {end}", special_tokens=tokens)
    roles = {"cls_token": first, "sep_token": last}
    mask = next((name for name in MASKS if framed.token_to_id(name) is not None), None)
    return framed.to_str(pretty=True).encode(), roles if mask is None else roles | {"mask_token": mask}


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n")
