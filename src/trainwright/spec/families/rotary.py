"""Rotary settings of a Hugging Face configuration, both ways."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.rotary import RopeScaling

if TYPE_CHECKING:
    from trainwright.spec.families.config_reader import ConfigReader

KINDS = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


def rope_scaling(read: ConfigReader, *, yarn_is_longrope: bool = False) -> RopeScaling | None:
    """Returns how rotary frequencies are scaled; None where they are not.

    Args:
        read: the configuration.
        yarn_is_longrope: Phi-3's first configurations call longrope ``yarn`` or ``su``.

    Raises:
        RecipeError: the kind is unknown, or a key of it is missing or malformed.
    """
    return section_scaling(read, read.rope(), yarn_is_longrope=yarn_is_longrope)


def section_scaling(read: ConfigReader, rope: ConfigReader, *, yarn_is_longrope: bool = False) -> RopeScaling | None:
    """Returns the same of one section of rotary settings; arguments and errors as there."""
    kind = rope.word("rope_type", rope.word("type", "default", (*KINDS, "su")), (*KINDS, "su"))
    if kind == "su" or (kind == "yarn" and yarn_is_longrope):
        kind = "longrope"
    if kind == "default":
        return None
    if kind in ("linear", "dynamic"):
        return RopeScaling(kind="linear" if kind == "linear" else "dynamic", factor=rope.needed("factor"))
    tokens = read.integer("max_position_embeddings", 2048)
    original = read.optional("original_max_position_embeddings") or rope.integer(
        "original_max_position_embeddings", tokens
    )
    if kind == "llama3":
        slow, fast = rope.needed("low_freq_factor"), rope.needed("high_freq_factor")
        factor = rope.needed("factor")
        return RopeScaling(kind="llama3", factor=factor, original_tokens=original, slow_turns=slow, fast_turns=fast)
    factor = rope.number("factor", tokens / original)
    return _yarn(rope, factor, original) if kind == "yarn" else _longrope(rope, factor, original)


def _yarn(rope: ConfigReader, factor: float, original: int) -> RopeScaling:
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_tokens=original,
        fast_turns=rope.number("beta_fast", 32.0),
        slow_turns=rope.number("beta_slow", 1.0),
        truncated=rope.flag("truncate", True),
        attention_factor=rope.number("attention_factor", _yarn_attention(rope, factor)),
    )


def _yarn_attention(rope: ConfigReader, factor: float) -> float:
    """Returns what cosines and sines are multiplied by (arXiv 2309.00071, section 3.4); DeepSeek divides two."""

    def of(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0

    one, all_dims = rope.number("mscale", None), rope.number("mscale_all_dim", None)
    return of(1.0) if one is None or all_dims is None else of(one) / of(all_dims)


def _longrope(rope: ConfigReader, factor: float, original: int) -> RopeScaling:
    usual = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return RopeScaling(
        kind="longrope",
        factor=factor,
        original_tokens=original,
        short_factors=rope.numbers("short_factor"),
        long_factors=rope.numbers("long_factor"),
        attention_factor=rope.number("attention_factor", usual),
    )


def rope_parameters(spec: ModelSpec) -> dict[str, Any]:
    """Returns the section of rotary settings of a shape, as transformers 5 keeps it."""
    parameters: dict[str, Any] = {"rope_theta": spec.rope_theta, "rope_type": "default"}
    if spec.rotary_share != 1:
        parameters["partial_rotary_factor"] = spec.rotary_share
    scaling = spec.rope_scaling
    if scaling is None:
        return parameters
    parameters |= {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind in ("linear", "dynamic"):
        return parameters
    parameters["original_max_position_embeddings"] = scaling.original_tokens
    if scaling.kind == "llama3":
        return parameters | {"low_freq_factor": scaling.slow_turns, "high_freq_factor": scaling.fast_turns}
    parameters["attention_factor"] = scaling.attention_factor
    if scaling.kind == "longrope":
        long, short = list(scaling.long_factors), list(scaling.short_factors)
        return parameters | {"long_factor": long, "short_factor": short}
    turns = {"beta_fast": scaling.fast_turns, "beta_slow": scaling.slow_turns}
    return parameters | turns | ({} if scaling.truncated else {"truncate": False})


def rope_keys(spec: ModelSpec) -> dict[str, Any]:
    """Returns all rotary keys of a shape, where transformers 5 and where transformers 4 looks for them."""
    parameters = rope_parameters(spec)
    keys: dict[str, Any] = {"rope_parameters": parameters, "rope_theta": spec.rope_theta}
    if spec.rotary_share != 1:
        keys["partial_rotary_factor"] = spec.rotary_share
    return keys if spec.rope_scaling is None else keys | {"rope_scaling": dict(parameters)}
