"""From a kind, a model and data to the keys of a recipe, each with a word about why it is so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.core.frozen import dataclass
from trainwright.pipeline.recipes.corpora import ChosenData
from trainwright.pipeline.recipes.kinds import Kind, rate_of
from trainwright.pipeline.recipes.models import ChosenModel
from trainwright.planner.plan.estimated_facts import bytes_per_token
from trainwright.spec.recipe import ANSWERED
from trainwright.spec.sections.task import TASKS

SEED = 1337
VOCABULARY = 4096
"""Of a tokenizer that is trained for a small network: as in recipes/quickstart.yaml."""
WINDOW_TOKENS, SMALL_WINDOW_TOKENS, MOST_TOKENS, FEWEST_TOKENS = 2048, 128, 2048, 32
"""Of a sequence: cut from a stream of texts, of a small network too; at most and at least where texts have lengths."""
SHARE = 0.98
"""Of the texts are no longer than a sequence."""
SHARE_OF_UPDATE = 1 / 20
"""Of the data, at most, so that a little of it still makes more than a few updates."""
PATCHES = 8
"""Of an image, wide and high, for a small network."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A recipe's keys, and what is said beside some of them, by dotted key."""

    tree: dict[str, Any]
    comments: dict[str, str]


def composed(kind: Kind, model: ChosenModel, data: ChosenData, *, name: str) -> Composed:
    """Returns the recipe of a kind for a model and data.

    Args:
        kind: what is trained.
        model: what begins.
        data: what it learns from.
        name: of the recipe.
    """
    tokens = _sequence_tokens(kind, model, data)
    tree: dict[str, Any] = {
        "name": name,
        "seed": SEED,
        "task": {**kind.task, **({"labels": list(data.labels)} if data.labels else {})},
        "model": _model(model, data, tokens),
        "data": _data(kind, model, data, tokens),
        "train": _train(kind, model, data, tokens),
    }
    return Composed(tree=tree, comments=_comments(kind, model, data, tree))


def _sequence_tokens(kind: Kind, model: ChosenModel, data: ChosenData) -> int:
    """Returns the tokens of a sequence: of an image all, of a stream a window, of texts as many as nearly all have."""
    shape, written = model.shape, (kind.small_train or {}) if model.shape is None else {}
    if data.images is not None:
        return _image_tokens(data) if shape is None else shape.context_tokens
    context = MOST_TOKENS if shape is None else shape.context_tokens
    if TASKS[kind.task["name"]].needs == "documents":
        window = WINDOW_TOKENS if shape is not None else SMALL_WINDOW_TOKENS
        return min(context, int(written.get("sequence_tokens", window)))
    length = 0 if data.survey is None else data.survey.longest(SHARE)
    needed = max(FEWEST_TOKENS - 1, length / bytes_per_token(_vocabulary(model)))
    return min(context, MOST_TOKENS, 1 << int(needed).bit_length())


def _vocabulary(model: ChosenModel) -> int:
    """Returns the entries of the tokenizer."""
    return VOCABULARY if model.shape is None else model.shape.vocabulary


def _patch(data: ChosenData) -> int:
    """Returns the pixels of a patch for a small network: of images of 8 pixels 2."""
    size = int((data.images or {})["size"])
    return max(2, size // PATCHES)


def _image_tokens(data: ChosenData) -> int:
    return (int((data.images or {})["size"]) // _patch(data)) ** 2 + 1


def _model(model: ChosenModel, data: ChosenData, tokens: int) -> dict[str, Any]:
    if model.shape is not None:
        return dict(model.keys)
    if data.images is not None:
        return {**model.keys, "image_size": data.images["size"], "patch_size": _patch(data)}
    return {**model.keys, "context_tokens": tokens}


def _data(kind: Kind, model: ChosenModel, data: ChosenData, tokens: int) -> dict[str, Any]:
    keys: dict[str, Any] = {"sources": [data.source]}
    if data.images is not None:
        size = data.images["size"] if model.shape is None else model.shape.image_size
        return {**keys, "images": {**data.images, "size": size}}
    if not data.labels:
        keys["split"] = {"train": 0.9, "validation": 0.05, "test": 0.05}
    if model.shape is None:
        keys["tokenizer"] = {"kind": "byte-bpe", "vocabulary": VOCABULARY}
    elif model.folder is None or model.missing:
        keys["tokenizer"] = {"vocabulary": model.shape.vocabulary}
    if TASKS[kind.task["name"]].needs in ANSWERED:
        template = {} if model.missing or model.has_template else {"template": "turns"}
        keys["chat"] = {**template, "max_tokens": tokens + 1}
    return keys


def _train(kind: Kind, model: ChosenModel, data: ChosenData, tokens: int) -> dict[str, Any]:
    keys = {
        "sequence_tokens": tokens,
        "batch_tokens": tokens * _sequences(kind, model, data, tokens),
        "duration": kind.duration,
        **({} if kind.method is None else {"method": dict(kind.method)}),
        "optimizer": {"name": "adamw", "lr": rate_of(kind, model.parameters)},
        "schedule": {"name": "cosine", "warmup": "0.1 epochs" if "epochs" in kind.duration else "0.2 tok/param"},
    }
    return keys | (dict(kind.small_train or {}) if model.shape is None else {})


def _sequences(kind: Kind, model: ChosenModel, data: ChosenData, tokens: int) -> int:
    """Returns the sequences of an update: fewer than usual where the data has few."""
    if data.survey is None or not data.survey.whole:
        return kind.sequences
    there: float = data.survey.documents
    if TASKS[kind.task["name"]].needs == "documents":
        there = sum(data.survey.lengths) / bytes_per_token(_vocabulary(model)) / tokens
    return max(1, min(kind.sequences, int(there * SHARE_OF_UPDATE)))


def _comments(kind: Kind, model: ChosenModel, data: ChosenData, tree: Mapping[str, Any]) -> dict[str, str]:
    """Returns what is said beside each key that is there; keys of ``SAID`` alone have the same word in each recipe."""
    said = dict(SAID) if model.shape is None else {key: said for key, said in SAID.items() if key not in OF_SMALL}
    said |= {"name": f"results go to runs/{tree['name']}", "task.name": kind.says}
    if data.labels:
        whole = data.survey is None or data.survey.whole
        said["task.name"] += f"; its {len(data.labels)} classes" + (
            "" if whole else ", as far as the data were looked at"
        )
    if model.shape is not None:
        said["model.family"] = f"from here on the shape of {model.name}"
        said["data.tokenizer.vocabulary"] = f"entries, as {model.name} has"
    if model.missing:
        said["model.init_from"] = "a folder: put the model's files into it"
        said["data.tokenizer.vocabulary"] += "; its own tokenizer is read from its folder"
    if data.images is not None:
        said["train.sequence_tokens"] = "of an image: its patches, and one that tells the class"
    if data.survey is not None and data.survey.lengths and TASKS[kind.task["name"]].needs != "documents":
        longest = f"{data.survey.longest(SHARE):,} bytes"
        said["train.sequence_tokens"] = f"nearly all texts fit: {SHARE:.0%} have at most {longest}"
    sequences = tree["train"]["batch_tokens"] // tree["train"]["sequence_tokens"]
    said["train.batch_tokens"] = f"{sequences} sequences an update; what a device holds at once the plan chooses"
    return said


SAID: Mapping[str, str] = {
    "seed": "the one seed: the same recipe gives the same weights",
    "task.beta": "smaller: answers move further from what the model says now",
    "model.family": "how the network is built",
    "model.layers": "more layers and width learn more, and take longer",
    "model.width": "numbers that stand for a token between two layers",
    "model.heads": "of attention; they share the width",
    "model.ffn_width": "the inner width of each layer's feed-forward",
    "model.tied": "whether embedding and head are one matrix",
    "model.image_size": "pixels, wide and high, as data.images.size",
    "model.init_from": "training begins with these weights, their shape and their tokenizer",
    "model.context_tokens": "the longest text that it can see",
    "model.patch_size": "pixels of a patch; each becomes a token",
    "data.sources.0.kind": "how the files are read: trainwright config explain data.sources",
    "data.sources.0.text_column": "what is read",
    "data.sources.0.text_key": "what is read",
    "data.sources.0.label_column": "what is learnt",
    "data.sources.0.label_key": "what is learnt",
    "data.split.train": "by a hash of the text: a text never changes sides",
    "data.tokenizer.kind": "byte-level: no text is unknown to it",
    "data.tokenizer.vocabulary": "entries at most; the tokenizer is trained on the texts",
    "data.chat.template": "how a chat becomes text; chatml or a Jinja file are others",
    "data.chat.max_tokens": "longer ones are left out and counted",
    "data.images.size": "pixels, wide and high; images are resized to it",
    "train.sequence_tokens": "texts are read in windows of so many",
    "train.duration": "longer learns more, until validation gets worse",
    "train.method.name": "small matrices beside frozen weights are trained; full trains all",
    "train.method.frozen": "the base's matrices in 4 bits; bf16 or fp32 where this line is left out",
    "train.method.rank": "of these matrices: more can learn more",
    "train.method.alpha": "what they are multiplied by, over the rank",
    "train.optimizer.name": "the update rule",
    "train.optimizer.muon_lr": "of the blocks' matrices, which Muon updates",
    "train.optimizer.embedding_lr": "of the embedding",
    "train.optimizer.weight_decay": "draws weights to zero; 0: none",
    "train.optimizer.lr": "peak learning rate; the first key to try others of",
    "train.schedule.name": "how the rate falls after the warm-up",
    "train.schedule.warmup": "the rate rises from zero for so long",
    "train.schedule.final_ratio": "the rate at the end over its peak",
}
"""What is said of keys; of those that a recipe does not have nothing."""
OF_SMALL = {key for key in SAID if key.startswith("model.")} - {"model.init_from"}
"""Keys whose word is about a network that may be changed."""
