"""The gain of a tuning on numbers that are worked out by hand, and the test for pairs by its formula."""

import math
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from trainwright.model.tasks.chat import ChatCosts

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "chat_gain.py"


@pytest.fixture(scope="module")
def script():
    spec = spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = module_from_spec(spec)
    sys.modules[SCRIPT.stem] = module  # where its records look their names up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[SCRIPT.stem]


def costs(means, tokens=(2, 4, 4, 10)):
    tokens = np.array(tokens)
    return ChatCosts(chats=np.arange(len(tokens)), nats=np.array(means, np.float64) * tokens, tokens=tokens)


def test_a_gain_is_over_tokens_and_its_test_over_chats(script):
    found = script.gain(costs([4, 3, 5, 9]), costs([3, 2, 2, 1]), chats=3)
    assert (found.chats, found.tokens, found.better) == (3, 10, 3)
    assert (found.base, found.tuned) == (4.0, 2.2)
    assert found.share == pytest.approx(0.45)
    # Differences 1, 1, 3: mean 5/3, standard deviation sqrt(4/3), so that t = 5/3 / (sqrt(4/3) / sqrt(3)) = 2.5.
    assert found.t_test_p == pytest.approx(2 * special.stdtr(2, -2.5))
    assert math.isclose(found.wilcoxon_p, 0.25)


def test_other_chats_or_too_few_are_refused(script):
    with pytest.raises(ValueError, match="5 chats are wanted"):
        script.gain(costs([1, 1, 1, 1]), costs([1, 1, 1, 1]), chats=5)
    with pytest.raises(ValueError, match="read other chats"):
        script.gain(costs([1, 1, 1, 1]), costs([1, 1, 1, 1], tokens=(2, 4, 4, 9)), chats=3)
