from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.planner.cost.batches import (
    MOST_IMAGES,
    critical_batch,
    critical_batch_tokens,
    critical_batch_tokens_at,
    divisible,
    images_over,
    refuse_longer,
    usual_batch,
)

EPOCHS = {
    1632: 35.0,
    3264: 35.2,
    4096: 40.0,
    8192: 42.0,
    13056: 45.4,
    32768: 56.0,
    35840: 60.0,
    49152: 68.0,
    58880: 79.9,
    65536: 84.4,
    67840: 86.0,
}
"""Mean epochs to 75.9 % by batch: MLPerf's reference convergence points of ResNet-50 (mlcommons/logging@0a0a659d8)."""


def test_the_critical_batch_of_images_tells_the_epochs_of_mlperf():
    law = critical_batch(model("resnet-50"), 1)
    least = 34.7
    for images, epochs in EPOCHS.items():
        assert float(least * law.price(images)) == pytest.approx(epochs, rel=0.06)
    # As good as 256 at 8,192 (Goyal et al., 2017): at most a fifth more there.
    assert law.price(256) < 1.01 and law.price(8192) < 1.2
    patches = model("vit-b-16")
    assert critical_batch(patches, 1).tokens == law.tokens * patches.context_tokens
    text = critical_batch(model("llama3-8b"), 10**12)
    assert text.tokens == critical_batch_tokens(1e12) and text.price(text.tokens) == pytest.approx(1.2)


def test_critical_batches():
    # Zhang et al., 2024: 93.20 x 302^0.47 sequences of 512 tokens for 302 M parameters on 20 tokens each.
    assert critical_batch_tokens(20 * 302e6) == pytest.approx(512 * 93.20 * 302**0.47)
    # Kaplan et al., 2020, section 5.1: 1 to 2 million tokens where the largest models converge (L about 2.6 to 3).
    assert 1e6 < critical_batch_tokens_at(3.0) < critical_batch_tokens_at(2.6) < 2.2e6


@given(st.integers(1, 5000))
def test_a_batch_is_rounded_to_the_most_powers_of_two(sequences):
    batch = divisible(sequences)
    near = [each for each in range(1, 6000) if abs(each - sequences) <= 0.05 * sequences + 1e-9]
    most = max(each & -each for each in near)
    assert batch in near
    assert batch & -batch == most
    assert divisible(512) == 512 and divisible(488) == 512


def test_a_batch_can_be_a_multiple_of_what_one_has():
    assert divisible(488, unit=24) == 480
    assert divisible(512, unit=24) == 528
    # No multiple of 24 is near 10.
    assert divisible(10, unit=24) == 10


@pytest.mark.parametrize(("devices", "images"), [(1, 256), (3, 192), (6, 192), (8, 256), (24, 768), (512, 8192)])
def test_each_device_has_a_power_of_two_of_images(devices, images):
    assert usual_batch(model("resnet-50"), devices, tunes=False)[0] == images


@given(st.integers(1, 20_000), st.sampled_from([256, 512, 1024]))
def test_images_divide_over_the_devices_that_there_are_images_for(devices, images):
    found = images_over(images, devices)
    assert found <= MOST_IMAGES
    if devices <= MOST_IMAGES:
        assert found % devices == 0 and (found // devices).bit_count() == 1
    if devices <= images:
        assert found / images <= 2 and images / found <= 2


def test_patches_come_in_larger_batches_and_fewer_where_they_are_tuned():
    patches = model("vit-b-16")
    assert usual_batch(patches, 1, tunes=False)[0] == 1024 and usual_batch(patches, 1, tunes=True)[0] == 512
    assert usual_batch(patches, 6, tunes=False)[0] == 768


def test_a_batch_is_no_longer_than_the_run_or_than_people_have_it():
    text, images = model("llama3-8b"), model("vit-b-16")
    refuse_longer(text, 1000, 10, 1000.0)
    refuse_longer(text, 1000, 1000, 10.0)
    with pytest.raises(RecipeError, match="a batch is longer than the run") as refusal:
        refuse_longer(images, 197 * 4096, 197 * 1024, 197 * 1000.0)
    refuse_longer(images, 197 * 1536, 197 * 1024, 197 * 1000.0)  # rounded for the devices
    assert (refusal.value.seen, refusal.value.expected) == ("4,096 images", "at most the 1,000 images of the run")
