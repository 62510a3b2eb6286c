from __future__ import annotations

import pytest

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.spec.families.config_reader import ConfigReader
from trainwright.spec.families.gpt2 import gpt2

KEYS = SMALL["gpt2"][1]


def read(**changes):
    return gpt2(ConfigReader(KEYS | changes, where="config.json"))


@pytest.mark.parametrize(("inner", "width"), [(None, 256), (72, 72)])
def test_the_feed_forward_is_four_times_as_wide_unless_it_says(inner, width):
    assert read(n_inner=inner).ffn_width == width


def test_a_decoder_that_attends_to_an_encoder_is_refused():
    with pytest.raises(RecipeError, match=r"add_cross_attention=True.*expected False"):
        read(add_cross_attention=True)
