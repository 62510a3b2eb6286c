"""A third task, from a folder of pictures to a model that transformers reads."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

pytestmark = pytest.mark.slow

RECIPE = """
name: stripes
seed: 5
task: {name: classify-images, labels: [across, down], shift: 1}
model: {family: vit, layers: 2, width: 32, heads: 2, image_size: 8, patch_size: 4}
data:
  sources:
    - {kind: images, paths: [%s]}
  images: {size: 8}
  exec: {workers: 1}
train:
  sequence_tokens: 5
  batch_tokens: 100
  duration: 50 steps
  precision: fp32
  optimizer: {lr: 3e-3}
  schedule: {warmup: 5 steps}
  validation: {every_steps: 30}
  exec: {compile: false, threads: 1, micro_batch: 10}
"""


@pytest.fixture(scope="module")
def told_apart(tmp_path_factory, project_of):
    root, dice = tmp_path_factory.mktemp("images"), np.random.default_rng(1)
    for label in ("across", "down"):
        (root / "pictures" / label).mkdir(parents=True)
        for number in range(60):
            pixels = dice.integers(0, 120, (10, 12, 3), np.uint8)
            lines = (slice(None, None, 2), slice(None)) if label == "across" else (slice(None), slice(None, None, 2))
            pixels[lines] += 130
            Image.fromarray(pixels).save(root / "pictures" / label / f"{number:02}.png")
    (root / "pictures" / "down" / "broken.png").write_bytes(b"no picture")
    recipe = root / "stripes.yaml"
    recipe.write_text(RECIPE % (root / "pictures"))
    project = project_of(recipe=recipe, workspace=root / "runs")
    done = project.call("run")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "skipped 1 broken record: not an image (down/broken.png)" in done.stderr
    return project


def test_it_learns_and_measures_what_can_be_told(told_apart) -> None:
    test = json.loads((told_apart.artifact("evaluate") / "evaluation.json").read_text())["splits"]["test"]
    counts = np.array(test["details"]["confusion"]["counts"])
    assert test["count"] == counts.sum() == 18
    assert test["metrics"]["accuracy"]["value"] == np.trace(counts) / 18 > 0.9


def test_transformers_computes_the_same_from_the_bundle(told_apart) -> None:
    transformers = pytest.importorskip("transformers")
    from trainwright.model.bundle import load_network

    bundle = told_apart.artifact("export") / "huggingface"
    theirs = transformers.ViTForImageClassification.from_pretrained(bundle).eval()
    ours = load_network(told_apart.artifact("train"))
    assert theirs.config.id2label == {0: "across", 1: "down"}
    settings = json.loads((bundle / "preprocessor_config.json").read_text())
    picture = np.asarray(Image.open(told_apart.recipe.parent / "pictures" / "down" / "00.png").resize((8, 8)))
    mean, std = (torch.tensor(settings[key]).view(3, 1, 1) for key in ("image_mean", "image_std"))
    pixels = (torch.from_numpy(picture.copy()).permute(2, 0, 1)[None] * settings["rescale_factor"] - mean) / std
    with torch.inference_mode():
        torch.testing.assert_close(theirs(pixels).logits, ours.logits(ours(pixels))[:, 0], atol=1e-5, rtol=1e-5)
    assert "image-classification" in (bundle / "README.md").read_text()


def test_the_report_stands_and_nothing_is_served(told_apart) -> None:
    (page,) = told_apart.artifact("report").glob("*.html")
    assert "8 x 8 pixels, red, green, blue" in page.read_text()
    assert not list(told_apart.workspace.glob("serve-*"))
    refused = told_apart.call("serve")
    assert refused.returncode == 2
    assert "tells classes or numbers, or fills gaps, and writes no text" in refused.stderr


RESNET = (
    "model: {family: resnet, image_size: 16, "
    "convolutions: {depths: [1, 1], widths: [8, 16], stem_width: 8, bottleneck: false}}"
)


def test_a_resnet_learns_the_same_and_transformers_computes_it(told_apart, project_of, tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    from trainwright.model.bundle import load_network

    recipe, text = tmp_path / "resnet.yaml", told_apart.recipe.read_text()
    vit = next(line for line in text.splitlines() if line.startswith("model:"))
    for old, new in (
        (vit, RESNET),
        ("{size: 8}", "{size: 16}"),
        ("sequence_tokens: 5", "sequence_tokens: 1"),
        ("batch_tokens: 100", "batch_tokens: 20"),
        (", micro_batch: 10", ""),
    ):
        text = text.replace(old, new)
    recipe.write_text(text)
    project = project_of(recipe=recipe, workspace=tmp_path / "runs")
    done = project.call("run")
    assert done.returncode == 0, done.stderr + done.stdout
    test = json.loads((project.artifact("evaluate") / "evaluation.json").read_text())["splits"]["test"]
    assert test["metrics"]["accuracy"]["value"] > 0.9
    ours = load_network(project.artifact("train"))
    assert not torch.equal(ours.stem.norm.running_var, torch.ones(8)), "its statistics are stored"
    bundle = project.artifact("export") / "huggingface"
    theirs = transformers.ResNetForImageClassification.from_pretrained(bundle).eval()
    pixels = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(theirs(pixels).logits, ours.logits(ours(pixels))[:, 0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("patch_size: 4", "patch_size: 3"), "image_size (8) must be a multiple of patch_size (3)"),
        (("{size: 8}", "{size: 12}"), "model.image_size (8) is not data.images.size (12)"),
        (("sequence_tokens: 5", "sequence_tokens: 4"), "train.sequence_tokens (4) is not the 5 tokens of an image"),
        (("[across, down]", "[across, up]"), "labels that task.labels lacks"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_before_anything_runs(
    told_apart, project_of, tmp_path, change, line
) -> None:
    recipe = tmp_path / "wrong.yaml"
    recipe.write_text(told_apart.recipe.read_text().replace(*change))
    project = project_of(recipe=recipe, workspace=tmp_path / "runs")
    done = project.call("run")
    assert done.returncode == 2, done.stderr
    assert line in done.stderr
    assert not list(project.workspace.glob("*"))
