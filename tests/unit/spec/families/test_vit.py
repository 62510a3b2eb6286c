"""How large an image is for ViT, and what the counts do not cover."""

from __future__ import annotations

import pytest

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.vit import vit


def keys_of(**changes):
    return ConfigReader(SMALL["vit"][1] | changes, where="config.json")


@pytest.mark.parametrize(("image", "patch", "tokens"), [(48, 16, 10), ([48, 48], [8, 8], 37)])
def test_an_image_is_its_patches_and_one_token(image, patch, tokens):
    spec = vit(keys_of(image_size=image, patch_size=patch))
    assert (spec.image_size, spec.context_tokens) == (48, tokens)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_channels": 4}, "num_channels=4"),
        ({"image_size": [48, 32]}, r"image_size \(seen \[48, 32\], expected a whole number"),
    ],
)
def test_what_the_counts_do_not_cover_is_refused(changes, message):
    with pytest.raises(RecipeError, match=message):
        vit(keys_of(**changes))


def test_classes_keep_their_names_where_they_have_some():
    named = vit(keys_of(id2label={"0": "cat", "1": "dog"}))
    assert (named.classes, named.labels) == (2, ("cat", "dog"))
    assert vit(keys_of(num_labels=3)).labels is None
