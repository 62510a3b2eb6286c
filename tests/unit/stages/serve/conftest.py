"""Trained models, and servers of them on free ports."""

from __future__ import annotations

import contextlib
import time

import pytest

from fixtures.trained import make_trained, recipe, tiny
from trainwright.stages.serve import service as service_module
from trainwright.stages.serve.server import Server, listen
from trainwright.stages.serve.service import load_service

__all__ = ["make_trained", "recipe", "tiny"]


@pytest.fixture(scope="session")
def bundle(tiny, tmp_path_factory):
    """A model directory whose answers never end by themselves: the end token's logit is about -100."""
    model = tiny.decoder("gpt2", context_tokens=512, tied=False)
    tokenizer = tiny.tokenizer()
    model.norm.bias[0] = 10.0
    model.head.weight[:, 0] = 0.0
    model.head.weight[tokenizer.token_to_id(tiny.END), 0] = -10.0
    return tiny.write_trained(tmp_path_factory.mktemp("bundle"), model, tokenizer)


@pytest.fixture
def make_service(bundle):
    """Loads the bundle; limits may be given."""

    def make(**changes):
        return load_service(bundle, **({"model_name": "tiny", "max_concurrent": 4, "max_waiting": 8} | changes))

    return make


@pytest.fixture
def serve(make_service):
    """Starts servers on free ports and stops them at the end of the test."""
    with contextlib.ExitStack() as stack:

        def start(*, grace_s=0.2, allowed_hosts=(), **changes):
            service = make_service(**changes)
            server = Server(service, listen("127.0.0.1", 0), allowed_hosts=allowed_hosts, grace_s=grace_s)
            return stack.enter_context(server), service

        yield start


@pytest.fixture
def slow(monkeypatch):
    """Makes every server of the test pause before each step, so that a test can act between steps."""
    opened = service_module.open_engine

    def open_slow(*arguments, **settings):
        engine = opened(*arguments, **settings)
        step = engine.step
        engine.step = lambda: time.sleep(0.02) or step()
        return engine

    monkeypatch.setattr(service_module, "open_engine", open_slow)


@pytest.fixture
def eventually():
    """Waits until something is true; fails after ten seconds."""

    def wait(condition):
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "it never became true"
            time.sleep(0.01)

    return wait
