"""Models by name, file or numbers: ``catalog/models`` has one TOML file per published model.

Each file holds its Hugging Face configuration, the parameter count that follows from it and the one that its source
prints; adding a model is adding a file.
"""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass
from trainwright.core.paths import read_object
from trainwright.core.spelling import did_you_mean
from trainwright.core.units import parse_count
from trainwright.hardware.catalogue import tables
from trainwright.spec.convnet import ConvNetSpec
from trainwright.spec.families.huggingface import from_huggingface
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts

_MODELS = "models"
_VARIANTS = re.compile(r"-(hf|instruct|chat|base|it)$")
"""Endings of published names that do not change the shape."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedModel:
    """A model of the catalogue.

    ``parameters`` is the exact count of the configuration; the ``published`` ones are as ``source`` prints them.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    spec: ModelSpec | ConvNetSpec
    parameters: int
    published_parameters: int
    published_active_parameters: int | None
    source: str
    recorded: str
    note: str
    trained_batch_tokens: int | None
    """Tokens of a step, at the end of any ramp-up, where the source prints them."""


def model_names() -> tuple[str, ...]:
    """Returns names of all models in the catalogue, sorted."""
    return tables.names(_MODELS)


_ENCODER_DECODERS = re.compile(
    r"(?:(?:flan-|m|by|long-?|code|um)?t5|flan-ul2|ul2|m?bart|pegasus|marian|opus-mt|nllb|m2m|madlad|whisper)"
    r"(?![a-z])|(?:t5|m2m)[a-z0-9]"
)
"""Families by the beginnings of their names; a model of one is no decoder with another name."""


def find_model(name: str) -> PublishedModel | None:
    """Returns the model of that name, alias or Hugging Face repository, or None."""
    slug = normalised(name)
    while slug:
        canonical = slug if slug in tables.names(_MODELS) else tables.aliases(_MODELS).get(slug)
        if canonical is not None:
            return _read(canonical)
        slug, shortened = _VARIANTS.sub("", slug), slug
        if slug == shortened:
            break
    return None


def published_model(name: str, *, where: str | None = None) -> PublishedModel:
    """Returns the model of that name, alias or Hugging Face repository; ``where`` it was asked for stands in the error.

    Raises:
        RecipeError: the catalogue does not know it; names the nearest ones.
    """
    model = find_model(name)
    if model is None:
        near = get_close_matches(normalised(name), [*model_names(), *tables.aliases(_MODELS)], n=3, cutoff=0.5)
        fix = f"did you mean {' or '.join(near)}?" if near else None
        if _ENCODER_DECODERS.match(normalised(name)):
            fix = "encoder-decoder models (T5, BART, Whisper, ...) are not known, alone decoders, encoders and vision"
        raise RecipeError(
            "unknown model",
            where=where,
            seen=repr(name),
            expected="a name from the catalogue, a config.json, or numbers such as layers=32,width=4096,...",
            fix=fix,
        )
    return model


def model(name: str, *, where: str | None = None) -> ModelSpec | ConvNetSpec:
    """Returns the shape of a published model.

    Raises:
        RecipeError: see ``published_model``.
    """
    return published_model(name, where=where).spec


def normalised(name: str) -> str:
    """``meta-llama/Llama-3.1-70B`` and ``llama 3.1 70b`` are one name: ``llama-3.1-70b``."""
    return re.sub(r"[^a-z0-9.]+", "-", name.rpartition("/")[2].lower()).strip("-")


@cache
def _read(slug: str) -> PublishedModel:
    table = tables.table(_MODELS, slug)
    return PublishedModel(
        name=table["name"],
        title=table["title"],
        aliases=tuple(table["aliases"]),
        spec=from_huggingface(table["config"], where=f"catalog/models/{slug}.toml"),
        parameters=table["parameters"],
        published_parameters=table["published_parameters"],
        published_active_parameters=table.get("published_active_parameters"),
        source=table["source"],
        recorded=table["recorded"],
        note=table.get("note", ""),
        trained_batch_tokens=table.get("trained_batch_tokens"),
    )


def read_model(text: str, *, where: str | None = None) -> ModelSpec | ConvNetSpec:
    """Returns the shape that a user names: by catalogue name, by file, or by numbers.

    Args:
        text: a name (``llama3-70b``), a ``config.json`` or a directory that holds one, or numbers
            (``layers=32,width=4096,heads=32,vocabulary=128256``).
        where: what asked for it, for the error line.

    Raises:
        RecipeError: none of these, or a file that is not there; says what is wrong and what is near.
        DataError: a file that is no JSON.
    """
    path = Path(text).expanduser()
    if "=" in text and path.name == text and path.suffix != ".json":
        return numbers_model(text, where=where)
    if path.is_dir() and (path / "config.json").is_file():
        path /= "config.json"
    elif path.is_dir() and "/" in text:
        raise RecipeError("a folder without config.json", where=where, seen=text, expected="a Hugging Face model's")
    if path.suffix == ".json" and not path.exists():
        raise RecipeError("no such file", where=path)
    if path.is_file() or path.suffix == ".json":
        return from_huggingface(read_object(path), where=str(path))
    return model(text, where=where)


_COUNTS = (
    "layers",
    "width",
    "heads",
    "kv_heads",
    "head_size",
    "ffn_width",
    "vocabulary",
    "context_tokens",
    "window_tokens",
    "experts",
    "active_experts",
    "expert_ffn_width",
    "shared_ffn_width",
    "dense_layers",
    "expert_groups",
    "active_groups",
    "further_layers",
)
_FLAGS = ("tied", "gated", "bias")
_NEEDED = ("layers", "width", "heads", "vocabulary")
DEFAULT_CONTEXT_TOKENS = 8192
"""Longest sequence of a model that is given by numbers without one."""


def numbers_model(text: str, *, where: str | None = None) -> ModelSpec:
    """Returns a decoder from ``name=number`` pairs, as Llama is built, or with ``gated=false`` as GPT-2 is.

    ``kv_heads`` default to ``heads``, ``head_size`` to width / heads, ``ffn_width`` to 8/3 of the width in multiples
    of 64 (gated) or 4 times the width; ``experts``, ``active_experts`` and ``expert_ffn_width`` make a mixture.
    A token goes to ``active_groups`` of ``expert_groups`` at most; ``further_layers`` predict further tokens.

    Raises:
        RecipeError: a pair that cannot be read, an unknown or a missing name, or a shape that cannot be.
    """
    values = _pairs(text, where=where)
    missing = [name for name in _NEEDED if name not in values]
    if missing:
        raise RecipeError("a model by numbers needs more", where=where, seen=text, expected=", ".join(missing))
    gated, width, heads = values.get("gated", 1) != 0, values["width"], values["heads"]
    if "head_size" not in values and (not heads or width % heads):
        raise RecipeError(
            "width ({width}) is not divisible by heads ({heads})",
            where=where,
            seen=text,
            fix="set head_size too",
            width=width,
            heads=heads,
        )
    spec = ModelSpec(
        family="transformer",
        layers=values["layers"],
        width=width,
        heads=heads,
        kv_heads=values.get("kv_heads", heads),
        head_size=values["head_size"] if "head_size" in values else width // heads,
        ffn_width=values.get("ffn_width", -(-(8 * width // 3) // 64) * 64 if gated else 4 * width),
        vocabulary=values["vocabulary"],
        context_tokens=values.get("context_tokens", DEFAULT_CONTEXT_TOKENS),
        tied=bool(values.get("tied", not gated)),
        gated=gated,
        norm="rmsnorm" if gated else "layernorm",
        norm_epsilon=1e-5,
        positions="rope" if gated else "learned",
        rope_theta=10000.0,
        bias=bool(values.get("bias", not gated)),
        activation="silu" if gated else "gelu_tanh",
        window_tokens=values.get("window_tokens"),
        further_layers=values.get("further_layers", 0),
    )
    if "experts" in values:
        spec = replace(spec, experts=_experts(values, spec.ffn_width))
    problems = spec.problems()
    if problems:
        raise RecipeError("this model cannot be: {problems}", where=where, seen=text, problems="; ".join(problems))
    return spec


def _experts(values: dict[str, int], ffn_width: int) -> Experts:
    return Experts(
        count=values["experts"],
        active=values.get("active_experts", 2),
        ffn_width=values.get("expert_ffn_width", ffn_width),
        shared_ffn_width=values.get("shared_ffn_width", 0),
        dense_layers=values.get("dense_layers", 0),
        groups=values.get("expert_groups", 1),
        active_groups=values.get("active_groups", values.get("expert_groups", 1)),
    )


def _pairs(text: str, *, where: str | None) -> dict[str, int]:
    """Returns names to numbers; a flag is 1 or 0."""
    counts: dict[str, int] = {}
    known = [*_COUNTS, *_FLAGS]
    for pair in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = (part.strip() for part in pair.partition("="))
        if name not in known:
            fix = did_you_mean(name, known)
            raise RecipeError("unknown size", where=where, seen=repr(pair), expected=", ".join(known), fix=fix)
        if name in counts:
            raise RecipeError("{name} is given twice", where=where, seen=text, name=name)
        if name in _FLAGS:
            if value.lower() not in {"true", "false"}:
                raise RecipeError("no flag", where=where, seen=repr(pair), expected=f"{name}=true or {name}=false")
            counts[name] = value.lower() == "true"
        else:
            counts[name] = _count(value, where=name if where is None else f"{where}: {name}")
    return counts


def _count(value: str, *, where: str) -> int:
    try:
        return parse_count(value)
    except RecipeError as error:
        raise error.at(where) from error
