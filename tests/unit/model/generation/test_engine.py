from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from trainwright.core.errors import MachineError, RecipeError
from trainwright.hardware.machine import room
from trainwright.model.cache import KVCache
from trainwright.model.decoder import Decoder
from trainwright.model.generation.engine import TorchEngine, open_engine
from trainwright.model.parts.rotary import RotaryTable
from trainwright.runtime.memory import LiveBytes
from trainwright.spec.generation import Failure, GenerationRequest, NewToken, Sampling
from trainwright.testing.contract_engine import EngineContract


@pytest.mark.parametrize("family", ["llama", "gpt2"])
class TestTorchEngine(EngineContract):
    @pytest.fixture(autouse=True)
    def _decoder(self, tiny, family):
        self.decoder = tiny.decoder(family)

    def make_engine(self, places):
        return TorchEngine(self.decoder, places=places)


class Poisoned(Decoder):
    """A decoder that computes no number for rows whose first token is 13."""

    rows: ClassVar[list[int]] = []

    def forward(self, tokens, **arguments):
        self.rows[:] = [row for row, ids in enumerate(tokens.tolist()) if ids[0] == 13]
        return super().forward(tokens, **arguments)

    def logits(self, hidden):
        logits = super().logits(hidden)
        logits[self.rows] = float("nan")
        return logits


def test_a_request_without_finite_logits_fails_alone(tiny):
    healthy = tiny.decoder()
    model = Poisoned(healthy.spec)
    model.load_state_dict(healthy.state_dict())
    engine = TorchEngine(model, places=3)
    settings = Sampling(max_tokens=4, temperature=0.7)
    good, bad = (engine.add(GenerationRequest(prompt=[first, 2], sampling=settings)) for first in (7, 13))
    events = engine.step()
    assert [type(event) for event in events] == [NewToken, Failure]
    assert events[1] == Failure(key=bad, reason="the network's highest logit is nan")
    assert engine.unfinished == 1
    tokens = [events[0].token]
    while engine.unfinished:
        tokens += [event.token for event in engine.step()]
    alone = TorchEngine(healthy, places=1)
    alone.add(GenerationRequest(prompt=[7, 2], sampling=settings))
    assert good == events[0].key
    assert tokens == [event.token for _ in range(4) for event in alone.step()]


def test_it_opens_a_directory(tiny, tmp_path):
    tiny.write_trained(tmp_path, tiny.decoder(context_tokens=64), tiny.tokenizer())
    engine = open_engine(tmp_path, places=3)
    assert (engine.places, engine.context_tokens, engine.vocabulary) == (3, 64, 320)
    assert engine.name == f"torch {torch.__version__}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="the cache is in the GPU's memory")
def test_a_cache_larger_than_memory_is_refused_before_it_is_made(tiny, tmp_path, monkeypatch):
    tiny.write_trained(tmp_path, tiny.decoder("gpt2", context_tokens=64), tiny.tokenizer())
    spec = tiny.decoder("gpt2", context_tokens=64).spec
    with LiveBytes() as live:
        cache = KVCache(spec, slots=3, max_tokens=64, dtype=torch.float32, device=torch.device("cpu"))
    held = live.peak_bytes
    assert cache.slots == 3
    monkeypatch.setattr(room, "memory", lambda: (held, 0))
    assert open_engine(tmp_path, places=3).places == 3
    with pytest.raises(MachineError, match=r"^max_concurrent: .* 4 requests .*; set it to 3$"):
        open_engine(tmp_path, places=4)


def test_tables_larger_than_memory_are_refused_before_they_are_made(tiny, tmp_path, monkeypatch):
    decoder = tiny.decoder("llama", context_tokens=4096)
    with LiveBytes() as live:
        table = RotaryTable(decoder.spec)
    tiny.write_trained(tmp_path, decoder, tiny.tokenizer())
    needed = room.ROTARY_BYTES * 4096 * decoder.spec.head_size
    assert table.cosines.nbytes + table.sines.nbytes < needed
    assert live.peak_bytes == pytest.approx(needed, rel=1e-3)
    monkeypatch.setattr(room, "memory", lambda: (needed - 1, 0))
    with pytest.raises(MachineError, match=r"a context of 4,096 tokens needs more memory than there is"):
        open_engine(tmp_path, places=1)


def test_a_classifier_is_refused(tiny, tmp_path):
    tiny.write_trained(tmp_path / "bundle", tiny.decoder(classes=2, language_head=False), tiny.tokenizer())
    with pytest.raises(RecipeError, match="and writes no text .*a head of 2 outputs"):
        open_engine(tmp_path / "bundle", places=1)


def test_an_encoder_is_refused(tiny, tmp_path):
    tiny.write_trained(tmp_path / "bundle", tiny.encoder(), tiny.tokenizer())
    with pytest.raises(RecipeError, match=r"fills gaps, and writes no text .*\(seen encoder, expected a decoder"):
        open_engine(tmp_path / "bundle", places=1)
