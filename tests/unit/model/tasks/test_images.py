"""Classification of images keeps the contract of tasks; what it measures is counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from trainwright.artifact.shard_writer import image_writer, write_image_dataset
from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.build import build_network
from trainwright.model.network import Network
from trainwright.model.tasks.images import ClassifyImages, classify_images
from trainwright.model.tasks.task import EvaluationOptions, load_task
from trainwright.spec.parts.images import ImageForm
from trainwright.spec.recipe import Recipe
from trainwright.testing.artifacts import make_dataset
from trainwright.testing.contract_task import TaskContract

LABELS = ("ant", "bee", "cow")
SIDE, IMAGES = 4, 20


def made_recipe(colour: str = "rgb", size: int = SIDE, **task: object) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "tiny",
            "task": {"name": "classify-images", "labels": list(LABELS)} | task,
            "model": {"family": "vit", "layers": 2, "width": 16, "heads": 2, "image_size": size, "patch_size": 2},
            "data": {"sources": [{"kind": "images", "paths": ["x"]}], "images": {"size": size, "colour": colour}},
            "train": {"sequence_tokens": (size // 2) ** 2 + 1, "batch_tokens": 4 * ((size // 2) ** 2 + 1)},
        }
    )


def made_dataset(path, channels: int = 3, labels: tuple[str, ...] = ("bee", "cow")) -> TokenDataset:
    random, entries = np.random.default_rng(4), {}
    for name in ("train", "test"):
        writer, size = image_writer(path, name, shard_values=300), SIDE * SIDE * channels
        values = random.integers(0, 256, IMAGES * size, np.uint8)
        ends = np.arange(1, IMAGES + 1, dtype=np.uint64) * np.uint64(size)
        classes = random.integers(0, len(labels), IMAGES).astype(np.uint16)
        writer.extend(values, ends, np.full(IMAGES, size, np.uint64), labels=classes)
        entries[name] = writer.close()
    mean, std = (0.5, 0.4, 0.3)[:channels], (0.2, 0.3, 0.4)[:channels]
    form = ImageForm(size=SIDE, channels=channels, mean=mean, std=std)
    write_image_dataset(path, form, splits=entries, labels=labels)
    return TokenDataset.open(path)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> dict[str, TokenDataset]:
    return {
        colour: made_dataset(tmp_path_factory.mktemp(colour), channels)
        for colour, channels in (("rgb", 3), ("grey", 1))
    }


def made_network(dtype: torch.dtype = torch.float64) -> Network:
    network = build_network(made_recipe().model_spec(vocabulary=0), dtype=dtype)
    network.initialise(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(10)  # so that predictions differ
    return network.to(dtype)


@pytest.mark.parametrize("colour", ["rgb", "grey"])
@pytest.mark.parametrize("changed", [{}, {"shift": 1, "flip": True}])
class TestContract(TaskContract):
    @pytest.fixture(autouse=True)
    def _parts(self, pictures: dict[str, TokenDataset], colour: str, changed: dict[str, object]) -> None:
        self.dataset, self.recipe = pictures[colour], made_recipe(colour, **changed)

    def make_task(self) -> ClassifyImages:
        return classify_images(self.recipe, self.dataset)

    def make_split(self) -> TokenSplit:
        return self.dataset.splits["train"]

    def make_network(self) -> Network:
        return made_network()


@pytest.mark.parametrize("colour", ["rgb", "grey"])
def test_each_image_is_normalised_and_classified_as_if_it_stood_alone(pictures, colour) -> None:
    dataset, network = pictures[colour], made_network().eval()
    form, split = dataset.images, dataset.splits["test"]
    counts, nats, sure = np.zeros((3, 3), int), 0.0, []
    for number in range(split.documents):
        values = split.read(number * form.values, (number + 1) * form.values) / 255
        image = (values.reshape(SIDE, SIDE, form.channels) - np.array(form.mean)) / np.array(form.std)
        given = torch.from_numpy(image.transpose(2, 0, 1).copy()).expand(3, -1, -1)
        with torch.no_grad():
            logits = network.logits(network(given[None]))[0, 0]
        true = LABELS.index(dataset.labels[split.document_labels[number]])
        nats += float(F.cross_entropy(logits[None], torch.tensor([true])))
        counts[true, int(logits.argmax())] += 1
        sure.append(float(logits.softmax(0).max()))
    task = load_task(made_recipe(colour), dataset)
    measured = task.evaluate(network, split, EvaluationOptions(batch_sequences=7, detailed=True))
    assert measured.details["confusion"]["counts"] == counts.tolist()
    assert measured.metrics["loss"].value == pytest.approx(nats / IMAGES, rel=1e-9)
    assert measured.metrics["accuracy"].value == np.trace(counts) / IMAGES
    confidences = [row["confidence"] * row["answers"] for row in measured.details["calibration"]["rows"]]
    assert sum(confidences) == pytest.approx(sum(sure))


def test_an_image_has_the_same_pixels_in_whatever_batch_of_its_epoch(pictures) -> None:
    task, split = classify_images(made_recipe(shift=2, flip=True), pictures["rgb"]), pictures["rgb"].splits["train"]

    def epochs(size: int) -> torch.Tensor:
        batches = task.batches(split, batch_sequences=size, seed=9)
        return torch.cat([batches.batch(step)["images"] for step in range(2 * IMAGES // size)])

    by_size = [epochs(size) for size in (4, 5, 10)]
    for other in by_size[1:]:
        assert torch.equal(other, by_size[0])
    assert not torch.equal(by_size[0][:IMAGES].sort(dim=0)[0], by_size[0][IMAGES:].sort(dim=0)[0])
    plain = classify_images(made_recipe(), pictures["rgb"]).batches(split, batch_sequences=20, seed=9)
    first, again = (sorted(image.numpy().tobytes() for image in plain.batch(step)["images"]) for step in (0, 1))
    assert first == again, "without augmentation an epoch shows what is stored"


def test_a_validation_of_some_tokens_is_of_as_many_whole_images(pictures) -> None:
    task, split = classify_images(made_recipe(), pictures["rgb"]), pictures["rgb"].splits["test"]
    few = task.evaluate(made_network(), split, EvaluationOptions(batch_sequences=2, tokens=5 * 3 + 4))
    assert few.count == 3
    with pytest.raises(DataError, match="no image to measure"):
        task.evaluate(made_network(), split, EvaluationOptions(batch_sequences=2, tokens=4))


def test_a_class_without_an_image_is_told(pictures) -> None:
    task = classify_images(made_recipe(), pictures["rgb"])
    assert list(task.notes(pictures["rgb"].splits)) == ["no image of the train split has the label 'ant'"]


def test_what_does_not_fit_is_refused_in_one_line(pictures, tmp_path) -> None:
    texts = TokenDataset.open(make_dataset(tmp_path / "texts", {"train": ["a", "b"]}).path)
    with pytest.raises(DataError, match="this dataset has no images"):
        classify_images(made_recipe(), texts)
    with pytest.raises(RecipeError, match="another size than the network's"):
        classify_images(made_recipe(size=8), pictures["rgb"])
    (tmp_path / "other").mkdir()
    with pytest.raises(RecipeError, match="labels that task.labels lacks"):
        classify_images(made_recipe(), made_dataset(tmp_path / "other", labels=("bee", "yak")))
