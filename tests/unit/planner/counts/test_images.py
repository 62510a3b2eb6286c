"""What autograd keeps of a ResNet, and how a batch is counted."""

from __future__ import annotations

import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.counts.images import batch_text, saved_bytes
from trainwright.spec.families.huggingface import from_huggingface
from trainwright.spec.workload import Workload

SHAPES = {
    "bottleneck": {"depths": [2, 1, 2], "hidden_sizes": [32, 64, 128], "layer_type": "bottleneck"},
    "stride first": {
        "depths": [1, 2],
        "hidden_sizes": [32, 64],
        "layer_type": "bottleneck",
        "downsample_in_bottleneck": True,
    },
    "basic": {"depths": [1, 2], "hidden_sizes": [16, 32], "layer_type": "basic"},
}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_saved_bytes_are_what_autograd_keeps(shape, precision):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    images, size, classes = 3, 37, 11
    config = transformers.ResNetConfig(**shape, embedding_size=16, num_labels=classes)
    network = transformers.ResNetForImageClassification(config)
    owned = {t.untyped_storage().data_ptr() for t in (*network.parameters(), *network.buffers())}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in owned:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # the tensor is held, so that no address comes twice
        return tensor

    labels = torch.zeros(images, dtype=torch.long)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast:
        network(pixel_values=torch.randn(images, 3, size, size), labels=labels)
    spec = from_huggingface({**config.to_dict(), "image_size": size, "num_labels": classes}, where="test")
    workload = Workload(sequence_tokens=1, batch_tokens=images, steps=1, precision=precision, optimizer="sgd")
    loss = 4 * images * classes + 8 * images + 4  # log-probabilities, labels, their weight
    assert sum(size for size, _ in kept.values()) == saved_bytes(spec, workload, images) + loss


def test_a_batch_is_counted_in_images_where_a_model_sees_them():
    assert batch_text(catalogue_model("llama3-8b"), 4 << 20) == "4,194,304 tokens"
    assert batch_text(catalogue_model("vit-b-16"), 4096 * 197) == "4,096 images"
    assert batch_text(catalogue_model("resnet-50"), 4096) == "4,096 images"
