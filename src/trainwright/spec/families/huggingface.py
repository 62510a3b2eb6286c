"""A Hugging Face ``config.json`` as a shape: the one place that knows which family reads which ``model_type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainwright.core.errors import RecipeError
from trainwright.core.spelling import did_you_mean
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.families import encoders, experts, gpt2, layernorm, llama, modernbert, rmsnorm, vit
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.model import ModelSpec

READERS: Mapping[str, Callable[[ConfigReader], ModelSpec | ConvNetSpec]] = {
    "bert": encoders.bert,
    "bloom": layernorm.bloom,
    "deepseek_v2": experts.deepseek_v2,
    "deepseek_v3": experts.deepseek_v3,
    "falcon": layernorm.falcon,
    "gemma": rmsnorm.gemma,
    "gemma2": rmsnorm.gemma2,
    "gemma3_text": rmsnorm.gemma3_text,
    "glm4_moe": experts.glm4_moe,
    "gpt2": gpt2.gpt2,
    "gpt_neox": layernorm.gpt_neox,
    "gpt_oss": experts.gpt_oss,
    "granite": rmsnorm.granite,
    "kimi_k2": experts.kimi_k2,
    "llama": llama.llama,
    "mistral": rmsnorm.mistral,
    "mixtral": experts.mixtral,
    "modernbert": modernbert.modernbert,
    "mpt": layernorm.mpt,
    "opt": layernorm.opt,
    "phi": layernorm.phi,
    "phi3": rmsnorm.phi3,
    "qwen2": rmsnorm.qwen2,
    "qwen2_moe": experts.qwen2_moe,
    "qwen3": rmsnorm.qwen3,
    "qwen3_moe": experts.qwen3_moe,
    "resnet": encoders.resnet,
    "roberta": encoders.roberta,
    "starcoder2": layernorm.starcoder2,
    "vit": vit.vit,
}
"""``model_type`` to the function that reads it."""


def from_huggingface(config: Any, *, where: str) -> ModelSpec | ConvNetSpec:
    """Returns the shape that a Hugging Face configuration describes; weights' dtype and quantisation are no part of it.

    Raises:
        RecipeError: no object, an unknown ``model_type`` (names the nearest), a missing or malformed key, a setting
            that the counts do not cover, or a shape that cannot be; one line names all.
    """
    if not isinstance(config, Mapping):
        raise RecipeError("bad model configuration", where=where, seen=type(config).__name__, expected="an object")
    kind = str(config.get("model_type", "nothing"))
    if kind not in READERS:
        text = (
            "only its text part can be planned: give text_config as a file of its own"
            if "text_config" in config
            else None
        )
        raise RecipeError(
            "unknown model_type",
            where=where,
            seen=repr(kind) if "model_type" in config else kind,
            expected=f"one of {', '.join(READERS)}",
            fix=text or did_you_mean(kind, READERS),
        )
    model = READERS[kind](ConfigReader(config, where=where))
    problems = model.problems()
    if problems:
        raise RecipeError("this model cannot be: {problems}", where=where, problems="; ".join(problems))
    return model
