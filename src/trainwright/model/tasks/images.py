"""Telling the class of an image: the head reads the hidden state of the class token, which is the first.

Shape legend: ``batch`` (images), ``channels`` (3 for the network), ``side`` (pixels), ``seq`` (tokens of an image),
``width``, ``classes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from trainwright.artifact.shards import IMAGES, TokenDataset, TokenSplit
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.losses import Loss
from trainwright.model.network import Network
from trainwright.model.tasks.augment import Augmentation
from trainwright.model.tasks.calibration import Calibration
from trainwright.model.tasks.confusion import Confusion
from trainwright.model.tasks.epochs import drawn
from trainwright.model.tasks.task import Batch, Evaluation, EvaluationOptions, Metric
from trainwright.spec.parts.images import ImageForm
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import ImageTaskSection

CHANNELS = 3
"""What networks see; grey images have their one channel three times."""


def classify_images(recipe: Recipe, dataset: TokenDataset) -> ClassifyImages:
    """Returns the task as a recipe asks for it.

    Raises:
        DataError: the dataset has no images.
        RecipeError: they are of another size than the network's, or of classes that ``task.labels`` lacks.
    """
    form = dataset.images
    if dataset.kind != IMAGES or form is None:
        raise DataError("this dataset has no images", where=dataset.path, seen=dataset.kind, expected=IMAGES)
    if form.size != recipe.model.image_size:
        raise RecipeError(
            "the images of the dataset have another size than the network's",
            where="model.image_size",
            seen=recipe.model.image_size,
            expected=str(form.size),
        )
    recipe.task.check_labels(dataset.labels)
    keys = recipe.task
    asked = (keys.shift, keys.flip) if isinstance(keys, ImageTaskSection) else (0, False)
    return ClassifyImages(
        form=form,
        labels=keys.labels,
        class_of_label=tuple(keys.labels.index(name) for name in dataset.labels),
        image_tokens=recipe.train.sequence_tokens,
        augmentation=Augmentation(shift=asked[0], flip=asked[1]),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledImages:
    """Images in a counter-based random order, every one once an epoch, each changed as the augmentation says."""

    split: TokenSplit
    form: ImageForm
    batch_sequences: int
    class_of_label: tuple[int, ...]
    augmentation: Augmentation
    seed: int = 0

    def batch(self, step: int, rows: range | None = None) -> dict[str, Tensor]:
        """Returns ``images``, bytes ``[batch, channels, side, side]``, and of each image its ``class``."""
        read, batch = range(self.batch_sequences) if rows is None else rows, self.batch_sequences
        epochs, numbers = drawn(step, read, batch=batch, documents=self.split.documents, seed=self.seed)
        images = self.pixels(numbers)
        if self.augmentation:
            images = self.augmentation(images, epochs, numbers)
        return self._batch(images, numbers)

    def unchanged(self, numbers: NDArray[np.int64]) -> dict[str, Tensor]:
        """Returns these images as a batch, as they are stored."""
        return self._batch(self.pixels(numbers), numbers)

    def pixels(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Returns these images, ``[batch, channels, side, side]``."""
        form = self.form
        out = np.empty((len(numbers), form.size, form.size, form.channels), np.uint8)
        for row, number in enumerate(numbers.tolist()):
            values = self.split.read(number * form.values, (number + 1) * form.values)
            out[row] = values.reshape(form.size, form.size, form.channels)
        return out.transpose(0, 3, 1, 2)

    def _batch(self, images: NDArray[np.uint8], numbers: NDArray[np.int64]) -> dict[str, Tensor]:
        classes = np.array(self.class_of_label, np.int64)[self.split.document_labels[numbers]]
        return {"images": torch.from_numpy(np.ascontiguousarray(images)), "class": torch.from_numpy(classes)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifyImages:
    """Cross-entropy of an image's class, given the image.

    ``labels`` name the classes in the head's order; ``class_of_label`` says which class each label of the dataset is.
    Images are normalised by the mean and the deviation of the train split. ``image_tokens`` are those of one image, by
    which lengths in tokens become images.
    """

    form: ImageForm
    labels: tuple[str, ...]
    class_of_label: tuple[int, ...]
    image_tokens: int
    augmentation: Augmentation = field(default_factory=Augmentation)

    @property
    def unit(self) -> str:
        """Losses are averaged over images."""
        return "image"

    def notes(self, splits: Mapping[str, TokenSplit]) -> Sequence[str]:
        """Returns a line for each class of which the train split has no image."""
        there = {self.class_of_label[label] for label in np.unique(splits["train"].document_labels).tolist()}
        return [
            f"no image of the train split has the label {label!r}"
            for number, label in enumerate(self.labels)
            if number not in there
        ]

    def batches(self, split: TokenSplit, *, batch_sequences: int, seed: int) -> LabelledImages:
        """Returns batches of images; every image once an epoch.

        Raises:
            DataError: the split has no image.
        """
        if not split.documents:
            raise DataError("the {name} split has no image", fix="give more data", name=split.name)
        changed = Augmentation(shift=self.augmentation.shift, flip=self.augmentation.flip, seed=seed)
        return LabelledImages(
            split=split,
            form=self.form,
            batch_sequences=batch_sequences,
            class_of_label=self.class_of_label,
            augmentation=changed,
            seed=seed,
        )

    def weight(self, batch: Batch) -> Int[Tensor, ""]:
        """Returns the number of images."""
        return torch.full((), batch["class"].shape[0], device=batch["class"].device)

    def inputs(self, network: Network, batch: Batch) -> Batch:
        """Returns the micro batch with images as the network sees them: normalised, of three channels."""
        exact = torch.promote_types(network.compute_dtype, torch.float32)
        images = batch["images"].to(exact) / 255
        mean, std = (
            torch.tensor(each, dtype=exact, device=images.device).view(-1, 1, 1)
            for each in (self.form.mean, self.form.std)
        )
        normal = ((images - mean) / std).expand(-1, CHANNELS, -1, -1)
        return {**batch, "images": normal}

    def hidden(self, network: Network, inputs: Batch) -> Float[Tensor, "batch width"]:
        """Returns the hidden state of each image's class token."""
        known = {name: inputs[name] for name in ("samples",) if name in inputs}
        hidden: Tensor = network(inputs["images"], **known)
        return hidden[:, 0]

    def loss(self, network: Network, hidden: Float[Tensor, "batch width"], inputs: Batch) -> Loss:
        """Returns the summed cross-entropy of the classes."""
        return network.head_loss(hidden, inputs["class"])

    def evaluate(self, network: Network, split: TokenSplit, options: EvaluationOptions) -> Evaluation:
        """Measure loss, accuracy, F1 and calibration; ``details`` hold them by label, the matrix and the curve."""
        total = split.documents if options.tokens is None else min(split.documents, options.tokens // self.image_tokens)
        if not total:
            raise DataError("the {name} split has no image to measure", fix="give it more images", name=split.name)
        source = self.batches(split, batch_sequences=options.batch_sequences, seed=0)
        confusion, calibration, nats = Confusion.empty(self.labels), Calibration(), 0.0
        training = network.training
        network.eval()
        try:
            for start in range(0, total, options.batch_sequences):
                stop = min(start + options.batch_sequences, total)
                batch = source.unchanged(np.arange(start, stop))
                part, sure, predicted = self._predict(network, batch)
                nats += part
                confusion.add(batch["class"].numpy(), predicted)
                calibration.add(sure, predicted == batch["class"].numpy())
                if options.progress is not None:
                    options.progress(stop, total)
        finally:
            network.train(training)
        return self._evaluation(confusion, calibration, nats, detailed=options.detailed)

    @torch.inference_mode()
    def _predict(self, network: Network, batch: Batch) -> tuple[float, NDArray[np.float64], NDArray[np.int64]]:
        """Returns the summed loss of a batch, and of each image the likeliest class with its probability."""
        here = self.inputs(network, {name: tensor.to(network.device) for name, tensor in batch.items()})
        hidden = self.hidden(network, here)
        loss, _ = self.loss(network, hidden, here)
        sure, predicted = network.logits(hidden).double().softmax(dim=-1).max(dim=-1)
        return float(loss), sure.cpu().numpy(), predicted.cpu().numpy()

    def _evaluation(self, confusion: Confusion, calibration: Calibration, nats: float, *, detailed: bool) -> Evaluation:
        count = confusion.documents
        metrics = {
            "loss": Metric(value=nats / count, unit="nats/image"),
            "accuracy": Metric(value=confusion.accuracy),
            "macro_f1": Metric(value=confusion.macro_f1),
            "calibration_error": Metric(value=calibration.error),
        }
        tables = {
            "by_label": confusion.by_label("images"),
            "confusion": confusion.to_json(),
            "calibration": calibration.curve(),
        }
        record = {"commonest_class_accuracy": confusion.commonest_class_accuracy}
        return Evaluation(count=count, metrics=metrics, record=record, details=tables if detailed else {})
