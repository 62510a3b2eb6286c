"""Pixels are those of the file, by hand; what is no image is told from what is."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from trainwright.spec.sections.data import ImagesSection
from trainwright.stages.data.images.pixels import Undecodable, decoded, stored

DOT = np.zeros((2, 3), np.uint8)
DOT[0, 2] = 200


def saved(array: np.ndarray, form: str = "PNG", **keys: object) -> io.BytesIO:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, form, **keys)
    stream.seek(0)
    return stream


def test_grey_stays_grey_and_colours_have_three_channels() -> None:
    colours = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    assert np.array_equal(decoded(saved(DOT)), DOT)
    assert np.array_equal(decoded(saved(colours)), colours)
    clear = np.dstack([colours, np.zeros((2, 3), np.uint8)])
    assert np.array_equal(decoded(saved(clear)), colours), "transparency is dropped"


def test_sixteen_bits_of_grey_become_their_upper_eight() -> None:
    wide = np.array([[0, 255, 256, 0x1234, 0xFFFF]], np.uint16)
    assert decoded(saved(wide)).tolist() == [[0, 0, 1, 0x12, 0xFF]]


def test_a_picture_is_turned_as_its_camera_says() -> None:
    orientation = Image.Exif()
    orientation[0x0112] = 6  # to be turned by 90 degrees clockwise
    assert np.array_equal(decoded(saved(DOT, exif=orientation)), np.rot90(DOT, -1))


def truncated() -> bytes:
    data = saved(np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)).getvalue()
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not an image"),
        (b"some text", "not an image"),
        (truncated(), "damaged image"),
        (saved(np.ones((2, 2), np.float32), "TIFF").getvalue(), "pixels that are no bytes (mode F)"),
    ],
)
def test_what_is_no_image_says_why(data: bytes, problem: str) -> None:
    with pytest.raises(Undecodable) as caught:
        decoded(io.BytesIO(data))
    assert str(caught.value) == problem


def test_an_image_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2)
    with pytest.raises(Undecodable, match="more pixels than an image may have"):
        decoded(saved(DOT))


def test_images_are_stored_as_squares_in_the_colours_that_are_asked_for() -> None:
    red = np.zeros((2, 2, 3), np.uint8)
    red[..., 0] = 100
    grey = stored(red, ImagesSection(size=2, colour="grey"))
    assert grey.shape == (2, 2, 1)
    assert set(grey.flatten().tolist()) == {round(100 * 0.299)}
    thrice = stored(DOT[:, :2], ImagesSection(size=2))
    assert thrice.shape == (2, 2, 3)
    assert np.array_equal(thrice[..., 0], DOT[:, :2]), "of its size already: no pixel changes"
    halves = np.repeat(np.array([[0, 200]], np.uint8), 4, axis=0).repeat(2, axis=1)
    assert stored(halves, ImagesSection(size=1, colour="grey")).item() == 100
