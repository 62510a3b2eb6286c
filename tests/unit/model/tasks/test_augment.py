"""Augmentation is pad, cut and mirror, each a function of seed, epoch and image alone."""

from __future__ import annotations

from collections import Counter

import numpy as np

from trainwright.model.tasks.augment import Augmentation

IMAGE = np.arange(1, 17, dtype=np.uint8).reshape(1, 1, 4, 4)


def shown(augmentation: Augmentation, epochs: list[int], numbers: list[int], image: np.ndarray = IMAGE) -> np.ndarray:
    images = np.repeat(image, len(epochs), axis=0)
    return augmentation(images, np.array(epochs), np.array(numbers))


def shifted(image: np.ndarray, down: int, right: int) -> np.ndarray:
    """The image moved so far, by a loop over pixels; zeros come in."""
    side, out = image.shape[-1], np.zeros_like(image)
    for row in range(side):
        for column in range(side):
            if 0 <= row - down < side and 0 <= column - right < side:
                out[..., row, column] = image[..., row - down, column - right]
    return out


def test_every_shift_is_one_of_nine_and_all_are_about_as_frequent() -> None:
    made = shown(Augmentation(shift=1, seed=5), [0] * 900, list(range(900)))
    known = {shifted(IMAGE[0], d, r).tobytes(): (d, r) for d in (-1, 0, 1) for r in (-1, 0, 1)}
    counts = Counter(known[image.tobytes()] for image in made)
    assert len(counts) == 9
    assert min(counts.values()) > 60, "100 each, with a deviation of 9.4"


def test_half_of_the_images_are_mirrored() -> None:
    colours = np.arange(48, dtype=np.uint8).reshape(1, 3, 4, 4)
    made = shown(Augmentation(flip=True), [2] * 400, list(range(400)), colours)
    mirrored = [np.array_equal(image, colours[0, :, :, ::-1]) for image in made]
    assert all(np.array_equal(image, colours[0]) for image, was in zip(made, mirrored, strict=True) if not was)
    assert 150 < sum(mirrored) < 250


def test_an_image_is_changed_alike_in_whatever_batch_and_otherwise_in_another_epoch() -> None:
    augmentation = Augmentation(shift=3, flip=True, seed=1)
    whole = shown(augmentation, [0, 0, 1, 1], [7, 8, 7, 8])
    for row, (epoch, number) in enumerate([(0, 7), (0, 8), (1, 7), (1, 8)]):
        assert np.array_equal(shown(augmentation, [epoch], [number])[0], whole[row])
    epochs = shown(augmentation, list(range(20)), [7] * 20)
    assert len({image.tobytes() for image in epochs}) > 5
    other = shown(Augmentation(shift=3, flip=True, seed=2), list(range(20)), [7] * 20)
    assert not np.array_equal(epochs, other)


def test_nothing_is_changed_where_nothing_is_asked() -> None:
    assert not Augmentation(seed=3)
    assert np.array_equal(shown(Augmentation(), [0, 1], [0, 1]), np.repeat(IMAGE, 2, axis=0))
