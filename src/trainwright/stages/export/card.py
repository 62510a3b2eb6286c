"""The model card: what the model is, what it was trained on, how well it does, and what is not known about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.core.units import format_count
from trainwright.spec.model import ModelSpec
from trainwright.spec.recipe import Recipe

_CARD = """\
---
library_name: transformers
pipeline_tag: {pipeline}
tags: [trainwright]
---

# {name}

{kind}, trained from {origin} with Trainwright.

| | |
|---|---|
{table}

## Training data

{sources}

{split}

## Use

{use}

## Limits

{limits}

## Licence

Unknown: the licences of the training data were not recorded. Find them out before you share the model.
"""

_GENERATE = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("path/to/this/directory")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
inputs = tokenizer("Once", return_tensors="pt", return_token_type_ids=False)
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=40)[0]))
```

or `trainwright serve --bundle path/to/this/directory`."""
_CLASSIFY = """\
```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained("path/to/this/directory")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
inputs = tokenizer("Once", return_tensors="pt", return_token_type_ids=False)
print(model.config.id2label[int(model(**inputs).logits.argmax())])
```"""
_FILL = """\
```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

model = AutoModelForMaskedLM.from_pretrained("path/to/this/directory")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
logits = model(**tokenizer("Once", return_tensors="pt", return_token_type_ids=False)).logits
```

or tune it: `model.init_from: path/to/this/directory`."""
_FILL_LIMITS = """\
The model tells what stood at gaps of texts like those it was trained on; it was not checked for bias. It may repeat its
training data."""
_GENERATE_LIMITS = """\
The model continues texts like those it was trained on; it was not tuned to follow instructions and was not checked for
harmful or false output. It may repeat its training data."""
_CLASSIFY_LIMITS = """\
The model answers with one of its labels for any text, however unlike the texts it was trained on; its answers were not
checked for bias."""


def model_card(recipe: Recipe, spec: ModelSpec, *, summary: Mapping[str, Any], pretrained: bool, dtype: str) -> str:
    """Returns the text of ``README.md``, with the metadata header that model hubs read.

    Args:
        recipe: what the model was made from.
        spec: its shape.
        summary: of the trained artefact; what it lacks is left out.
        pretrained: whether training began with the weights of another model.
        dtype: of the stored weights.
    """
    rows = [
        ("parameters", _count(summary.get("parameters"))),
        ("family", spec.family),
        ("layers, width, feed-forward", f"{spec.layers}, {spec.width}, {spec.ffn_width}"),
        ("heads (key/value heads) of size", f"{spec.heads} ({spec.kv_heads}) of {spec.head_size}"),
        ("vocabulary", f"{spec.vocabulary:,}"),
        ("context", f"{spec.context_tokens:,} tokens"),
        ("weights stored in", dtype),
        ("trained on", _tokens(summary)),
        (
            "validation loss",
            _number(summary.get("validation_loss"), "nats per document" if spec.classes else "nats per token"),
        ),
        ("validation bits per byte", _number(summary.get("bits_per_byte"), "")),
    ]
    split = recipe.data.split
    equal = "were kept once" if recipe.data.dedup == "exact" else "were all kept"
    labels = ", ".join(f"`{label}`" for label in spec.labels or recipe.task.labels)
    writes, network = spec.writes_text, "A decoder-only" if spec.kind == "decoder" else "An encoder as a"
    return _CARD.format(
        name=recipe.name,
        pipeline="text-classification" if spec.classes else "text-generation" if writes else "fill-mask",
        kind=f"{network} classifier of documents ({labels})" if spec.classes else f"{network} language model",
        use=_CLASSIFY if spec.classes else _GENERATE if writes else _FILL,
        limits=_CLASSIFY_LIMITS if spec.classes else _GENERATE_LIMITS if writes else _FILL_LIMITS,
        origin="the weights of another model" if pretrained else "scratch",
        table="\n".join(f"| {name} | {value} |" for name, value in rows if value),
        sources="\n".join(f"- {_source(source.model_dump(mode='json'))}" for source in recipe.data.sources),
        split=f"Split by a hash of each document: {split.train:g} to train on, {split.validation:g} to validate on, "
        f"{split.test:g} to test on; documents that are equal after cleaning {equal}.",
    )


def _source(source: Mapping[str, Any]) -> str:
    """Returns the kind and the names; folders of the machine are nobody's business."""
    names = [path if "://" in path else Path(path).name for path in source.get("paths", ())]
    return f"`{source['kind']}`" + (f": {', '.join(names)}" if names else "")


def _tokens(summary: Mapping[str, Any]) -> str:
    tokens, steps = summary.get("tokens"), summary.get("steps")
    return f"{format_count(tokens)} tokens in {steps:,} steps" if tokens and steps else ""


def _count(value: Any) -> str:
    return format_count(value) if value is not None else ""


def _number(value: Any, unit: str) -> str:
    return f"{value:.4f} {unit}".strip() if value is not None else ""
