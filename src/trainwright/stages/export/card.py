"""The model card: what the model is, what it was trained on, how well it does, and what is not known about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwright.core.units import format_count
from trainwright.spec.model import ModelSpec
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import EmbedSection

_CARD = """\
---
library_name: {library}
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
_CLASSIFY_MANY = """\
```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained("path/to/this/directory")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
inputs = tokenizer("Once", return_tensors="pt", return_token_type_ids=False)
odds = model(**inputs).logits[0]  # their logarithms: above 0 the document has the label
print([label for number, label in model.config.id2label.items() if odds[number] > 0])
```"""
_REGRESS = """\
```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained("path/to/this/directory")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
inputs = tokenizer("Once", return_tensors="pt", return_token_type_ids=False)
scaled = model(**inputs).logits.item()  # in standard deviations of the numbers that it was trained on
print(scaled * model.config.target_std + model.config.target_mean)
```"""
_REWARD = """\
```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained("path/to/this/directory")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
chat = [{"role": "user", "content": "Once?"}, {"role": "assistant", "content": "Twice."}]
inputs = tokenizer.apply_chat_template(chat, tokenize=False)
inputs = tokenizer(inputs, add_special_tokens=False, return_tensors="pt", return_token_type_ids=False)
print(model(**inputs).logits.item())  # the answer's reward: of two answers to one question the better one has more
```"""
_EMBED = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/directory")
one, other = model.encode(["Once", "Twice"])
print(one @ other)  # the cosine of both texts: vectors have length 1
```

or with transformers' `AutoModel`: {how}, divided by its length."""
_POOLED = {
    "mean": "the mean of a text's last hidden states",
    "cls": "the last hidden state of a text's first token",
    "last": "the last hidden state of a text's last token",
}
_CLASSIFY_TOKENS = """\
```python
from transformers import AutoModelForTokenClassification, AutoTokenizer

model = AutoModelForTokenClassification.from_pretrained("path/to/this/directory")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")
text = " ".join(["Once", "upon"])  # words, with a space between them
inputs = tokenizer(text, return_offsets_mapping=True, return_tensors="pt", return_token_type_ids=False)
offsets = inputs.pop("offset_mapping")[0]
for (start, stop), number in zip(offsets.tolist(), model(**inputs).logits[0].argmax(dim=-1).tolist()):
    print(repr(text[start:stop]), model.config.id2label[number])  # of a word its first token counts
```"""
_CLASSIFY_IMAGES = """\
```python
from PIL import Image
from transformers import AutoModelForImageClassification, ViTImageProcessor

model = AutoModelForImageClassification.from_pretrained("path/to/this/directory")
processor = ViTImageProcessor.from_pretrained("path/to/this/directory")
inputs = processor(Image.open("image.png"), return_tensors="pt")
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


_CLASSIFY_MANY_LIMITS = """\
The model says yes or no to each of its labels for any text, however unlike the texts it was trained on; its answers
were not checked for bias."""
_CLASSIFY_TOKENS_LIMITS = """\
The model answers with one of its labels for each word of any text, however unlike the texts it was trained on; its
answers were not checked for bias."""
_REGRESS_LIMITS = """\
The model tells a number for any text, however unlike the texts it was trained on, and does not say how sure it is; its
answers were not checked for bias."""
_EMBED_LIMITS = """\
Cosines tell which of some texts is nearer to another one, for texts like those that belong together in the training
data; what a cosine is by itself means nothing. Texts were read up to {tokens} tokens in training, with those that the
tokenizer puts around them; longer ones are cut. It was not checked for bias."""
_REWARD_LIMITS = """\
Rewards compare answers to one question: their difference is the logarithm of the odds that the one is preferred, and
what a reward is by itself means nothing. Answers unlike those that it was trained on have rewards too, so that whoever
seeks the largest finds answers that nobody prefers."""
_CLASSIFY_IMAGES_LIMITS = """\
The model answers with one of its labels for any image, however unlike the images it was trained on; its answers were
not checked for bias."""
MANY = "multi_label_classification"
"""The problem of networks that say yes or no to each of several labels."""
_GREY = " It was trained on grey images: make others grey first."
"""What a processor of Hugging Face's does not do by itself."""


def model_card(recipe: Recipe, spec: ModelSpec, *, summary: Mapping[str, Any], pretrained: bool, dtype: str) -> str:
    """Returns the text of ``README.md``, with the metadata header that model hubs read.

    Args:
        recipe: what the model was made from.
        spec: its shape.
        summary: of the trained artefact; what it lacks is left out.
        pretrained: whether training began with the weights of another model.
        dtype: of the stored weights.
    """
    split, said, kind = recipe.data.split, _words(recipe, spec), recipe.task.kind
    unit = "image" if spec.sees_images else "word" if spec.tells_tokens else "document" if spec.classes else "token"
    unit = "pair" if kind.needs in ("preferences", "pairs") else "label" if kind.problem_type == MANY else unit
    rows = _rows(spec, summary, dtype, loss=f"{kind.loss_unit} per {unit}", accuracy=unit in ("image", "pair"))
    equal = "were kept once" if recipe.data.dedup == "exact" else "were all kept"
    shares = f"{split.train:g} to train on, {split.validation:g} to validate on, {split.test:g} to test on"
    how = (
        f"Every class is split in the order of hashes: {shares}; images whose pixels are equal {equal}."
        if spec.sees_images
        else f"Split by a hash of each document: {shares}; documents that are equal after cleaning {equal}."
    )
    return _CARD.format(
        name=recipe.name,
        **said,
        library="sentence-transformers" if kind.makes == "embedding" else "transformers",
        origin="the weights of another model" if pretrained else "scratch",
        table="\n".join(f"| {name} | {value} |" for name, value in rows if value),
        sources="\n".join(f"- {_source(source.model_dump(mode='json'))}" for source in recipe.data.sources),
        split=how,
    )


def _rows(
    spec: ModelSpec, summary: Mapping[str, Any], dtype: str, *, loss: str, accuracy: bool
) -> list[tuple[str, str]]:
    """Returns the rows of the table by name; what is not known is empty."""
    reads = [("vocabulary", f"{spec.vocabulary:,}"), ("context", f"{spec.context_tokens:,} tokens")]
    stages, image = spec.convolutions, f"{spec.image_size} x {spec.image_size} pixels"
    sees = [("image", image if stages else f"{image}, patches of {spec.patch_size}")]
    blocks = [
        ("layers, width, feed-forward", f"{spec.layers}, {spec.width}, {spec.ffn_width}"),
        ("heads (key/value heads) of size", f"{spec.heads} ({spec.kv_heads}) of {spec.head_size}"),
    ]
    if stages is not None:
        each = zip(stages.depths, stages.widths, strict=True)
        blocks = [("stages", ", ".join(f"{depth} blocks of {width} channels" for depth, width in each))]
    return [
        ("parameters", _count(summary.get("parameters"))),
        ("family", spec.family),
        *blocks,
        *(sees if spec.sees_images else reads),
        ("weights stored in", dtype),
        ("trained on", _trained_on(summary, spec)),
        ("validation loss", _number(summary.get("validation_loss"), loss)),
        ("validation accuracy", _number(summary.get("validation_accuracy") if accuracy else None, "")),
        ("validation bits per byte", _number(summary.get("bits_per_byte"), "")),
    ]


def _words(recipe: Recipe, spec: ModelSpec) -> dict[str, str]:
    """Returns what the model is, how it is used and what it cannot, by place in the card."""
    labels = ", ".join(f"`{label}`" for label in spec.labels or recipe.task.labels)
    if spec.sees_images:
        images = recipe.data.images
        network = "A vision transformer" if spec.convolutions is None else "A residual network"
        grey = _GREY if images is not None and images.channels == 1 else ""
        return {
            "pipeline": "image-classification",
            "kind": f"{network} as a classifier of images ({labels})",
            "use": _CLASSIFY_IMAGES,
            "limits": _CLASSIFY_IMAGES_LIMITS + grey,
        }
    if recipe.task.kind.makes == "number":
        network = "A decoder-only network" if spec.kind == "decoder" else "An encoder"
        return {
            "pipeline": "text-classification",
            "kind": f"{network} that tells a number of a document",
            "use": _REGRESS,
            "limits": _REGRESS_LIMITS,
        }
    if isinstance(recipe.task, EmbedSection):
        network = "A decoder-only network" if spec.kind == "decoder" else "An encoder"
        return {
            "pipeline": "sentence-similarity",
            "kind": f"{network} that makes a vector of {spec.width} numbers of a text",
            "use": _EMBED.format(how=_POOLED[recipe.task.pooling]),
            "limits": _EMBED_LIMITS.format(tokens=recipe.train.sequence_tokens // recipe.data.texts),
        }
    if recipe.task.kind.makes == "reward":
        return {
            "pipeline": "text-classification",
            "kind": "A decoder-only network that gives a reward to an answer",
            "use": _REWARD,
            "limits": _REWARD_LIMITS,
        }
    if spec.tells_tokens:
        network = "A decoder-only network" if spec.kind == "decoder" else "An encoder"
        return {
            "pipeline": "token-classification",
            "kind": f"{network} that tells the label of each word ({labels})",
            "use": _CLASSIFY_TOKENS,
            "limits": _CLASSIFY_TOKENS_LIMITS,
        }
    many = recipe.task.kind.problem_type == MANY
    writes, network = spec.writes_text, "A decoder-only" if spec.kind == "decoder" else "An encoder as a"
    return {
        "pipeline": "text-classification" if spec.classes else "text-generation" if writes else "fill-mask",
        "kind": f"{network} classifier of documents ({labels})" if spec.classes else f"{network} language model",
        "use": _CLASSIFY_MANY if many else _CLASSIFY if spec.classes else _GENERATE if writes else _FILL,
        "limits": _CLASSIFY_MANY_LIMITS
        if many
        else _CLASSIFY_LIMITS
        if spec.classes
        else _GENERATE_LIMITS
        if writes
        else _FILL_LIMITS,
    }


def _source(source: Mapping[str, Any]) -> str:
    """Returns the kind and the names; folders of the machine are nobody's business."""
    names = [path if "://" in path else Path(path).name for path in source.get("paths", ())]
    return f"`{source['kind']}`" + (f": {', '.join(names)}" if names else "")


def _trained_on(summary: Mapping[str, Any], spec: ModelSpec) -> str:
    seen, steps = summary.get(spec.batch_unit), summary.get("steps")
    return f"{format_count(seen)} {spec.batch_unit} in {steps:,} steps" if seen and steps else ""


def _count(value: Any) -> str:
    return format_count(value) if value is not None else ""


def _number(value: Any, unit: str) -> str:
    return f"{value:.4f} {unit}".strip() if value is not None else ""
