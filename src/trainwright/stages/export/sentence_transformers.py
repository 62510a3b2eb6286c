"""What a Hugging Face directory of an embedding model holds besides, so that sentence-transformers loads it.

``modules.json`` names the parts, each with its folder: the network, what makes one vector of its tokens' vectors
(``1_Pooling``, in whose ``config.json`` one way is true), and the division by its length (``2_Normalize``, no file).
The format is that of sentence-transformers 2.2 and later, "Creating Custom Models" of its documentation (2026-11-29).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.artifact.store import write_atomically
from trainwright.spec.sections.tasks.keys import EmbedSection

POOLING = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "last": "pooling_mode_lasttoken",
}
"""Its keys by our names; those that no task here has are false."""
PARTS = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))


def write_sentence_transformers(
    directory: Path, how: EmbedSection, *, width: int, text_tokens: int, pooler: bool
) -> None:
    """Write the files beside those of the network.

    Args:
        directory: with the network and its tokenizer.
        how: the task that it learnt.
        width: of an embedding.
        text_tokens: of a text in training, with what its tokenizer puts around it; longer ones are cut.
        pooler: transformers' network would add one of its own, with weights that nothing trained; it is told not to.
    """
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (path, name) in enumerate(PARTS)
    ]
    pooling = {key: name == how.pooling for name, key in POOLING.items()}
    bare = {"model_args": {"add_pooling_layer": False}} if pooler else {}
    written: Mapping[str, Any] = {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": text_tokens, "do_lower_case": False, **bare},
        "config_sentence_transformers.json": {"similarity_fn_name": "cosine", "prompts": {}},
        "1_Pooling/config.json": {"word_embedding_dimension": width, **pooling, "include_prompt": True},
    }
    (directory / "1_Pooling").mkdir(exist_ok=True)
    for name, value in written.items():
        write_atomically(directory / name, json.dumps(value, indent=2).encode() + b"\n")
