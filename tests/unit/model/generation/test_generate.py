from __future__ import annotations

import random

import pytest
import torch

from trainwright.core.errors import RecipeError
from trainwright.model.conventions import special_ids
from trainwright.model.generation import engine as engine_module
from trainwright.model.generation.engine import TorchEngine
from trainwright.model.generation.generate import complete
from trainwright.model.generation.text_stream import TokenBytes
from trainwright.model.generation.texts import TextGenerator
from trainwright.spec.generation import Sampling

NO_END = frozenset()


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return tiny.tokenizer()


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def model(request, tiny):
    return tiny.decoder(request.param)


def prompts(n: int, longest: int = 60) -> list[list[int]]:
    draw = random.Random(7)
    return [[draw.randrange(320) for _ in range(draw.randint(1, longest))] for _ in range(n)]


def without_cache(model, prompt: list[int], n: int) -> list[int]:
    """Greedy continuation, the whole sequence computed anew for each token."""
    tokens = list(prompt)
    for _ in range(min(n, model.spec.context_tokens - len(prompt))):
        tokens.append(int(model.logits(model(torch.tensor([tokens]))[0, -1]).argmax()))
    return tokens[len(prompt) :]


def start(model, tokenizer, *, places: int) -> TextGenerator:
    """A fresh engine behind its text."""
    return TextGenerator(TorchEngine(model, places=places), TokenBytes(tokenizer), end_ids=NO_END)


def run(generator: TextGenerator) -> dict[int, str]:
    """The text of each request."""
    texts: dict[int, str] = {}
    while generator.unfinished:
        for piece in generator.step():
            texts[piece.key] = texts.get(piece.key, "") + piece.text
    return texts


@pytest.mark.parametrize("places", [1, 4])
@pytest.mark.parametrize("prefill_tokens", [512, 16])
def test_mixed_lengths_in_a_batch_equal_each_alone(model, tokenizer, monkeypatch, places, prefill_tokens):
    monkeypatch.setattr(engine_module, "PREFILL_TOKENS", prefill_tokens)
    token_bytes = TokenBytes(tokenizer)
    done = complete(model, tokenizer, prompts(9), Sampling(max_tokens=12), end_ids=NO_END, places=places)
    for prompt, answer in zip(prompts(9), done, strict=True):
        expected = without_cache(model, prompt, 12)
        assert answer.text == token_bytes.text(expected)
        assert (answer.prompt_tokens, answer.completion_tokens, answer.finish) == (len(prompt), len(expected), "length")


def test_same_seed_same_text_alone_or_in_a_batch(model, tokenizer):
    engine = start(model, tokenizer, places=4)
    jobs = [(p, Sampling(max_tokens=20, temperature=0.9, top_p=0.9, seed=n)) for n, p in enumerate(prompts(7))]
    keys = [engine.add(*job) for job in jobs]
    together = run(engine)
    for key, (prompt, sampling) in zip(keys, jobs, strict=True):
        (alone,) = complete(model, tokenizer, [prompt], sampling, end_ids=NO_END)
        assert together[key] == alone.text


def test_choices_of_one_seed_differ(model, tokenizer):
    texts = set()
    for choice in range(4):
        sampling = Sampling(max_tokens=20, temperature=1.0, seed=3, choice=choice)
        texts.add(complete(model, tokenizer, ["def"], sampling)[0].text)
    assert len(texts) == 4


def test_requests_come_and_go_between_steps(model, tokenizer):
    token_bytes = TokenBytes(tokenizer)
    engine = start(model, tokenizer, places=3)
    draw = random.Random(1)
    waiting = [(p, draw.randint(1, 15)) for p in prompts(14, longest=40)]
    jobs, texts, cancelled = {}, {}, set()
    while waiting or engine.unfinished:
        for prompt, n in waiting[: draw.randint(0, 2)]:
            jobs[engine.add(prompt, Sampling(max_tokens=n))] = (prompt, n)
            waiting = waiting[1:]
        if draw.random() < 0.1 and jobs:
            key = draw.choice(list(jobs))
            engine.cancel(key)
            cancelled.add(key)
        for piece in engine.step():
            assert piece.key not in cancelled
            texts[piece.key] = texts.get(piece.key, "") + piece.text
    assert cancelled
    for key in jobs.keys() - cancelled:
        prompt, n = jobs[key]
        assert texts[key] == token_bytes.text(without_cache(model, prompt, n))


def test_end_token_stop_text_length_and_context(tiny, tokenizer):
    model = tiny.decoder()
    plain = without_cache(model, [5, 6, 7], 93)
    token_bytes = TokenBytes(tokenizer)

    (ended,) = complete(model, tokenizer, [[5, 6, 7]], Sampling(max_tokens=30), end_ids=frozenset({plain[4]}))
    at = plain.index(plain[4])
    assert (ended.text, ended.completion_tokens, ended.finish) == (token_bytes.text(plain[:at]), at + 1, "stop")

    whole = token_bytes.text(plain[:20])
    stop = whole[6:9]
    sampling = Sampling(max_tokens=30, stop=("never there", stop))
    (stopped,) = complete(model, tokenizer, [[5, 6, 7]], sampling, end_ids=NO_END)
    assert (stopped.text, stopped.finish) == (whole[: whole.index(stop)], "stop")

    (full,) = complete(model, tokenizer, [[5, 6, 7]], Sampling(max_tokens=10_000), end_ids=NO_END)
    assert (full.completion_tokens, full.finish) == (model.spec.context_tokens - 3, "length")
    assert full.text == token_bytes.text(plain)


def test_empty_and_too_long_prompts_are_refused_with_the_numbers(tiny, tokenizer):
    model = tiny.decoder()
    with pytest.raises(RecipeError, match="seen 0 tokens, expected 1 to 95"):
        complete(model, tokenizer, [""], Sampling(max_tokens=1))
    with pytest.raises(RecipeError, match="seen 96 tokens, expected 1 to 95"):
        complete(model, tokenizer, [[1] * 96], Sampling(max_tokens=1))
    (longest,) = complete(model, tokenizer, [[1] * 95], Sampling(max_tokens=9), end_ids=NO_END)
    assert longest.completion_tokens == 1


def test_no_prompts_no_answers(tiny, tokenizer):
    assert complete(tiny.decoder(), tokenizer, [], Sampling(max_tokens=1)) == []


def test_special_ids(tiny, tokenizer):
    assert special_ids(tokenizer) == {tokenizer.token_to_id(tiny.END)}


def test_bfloat16_stays_near(tiny, tokenizer):
    exact, rough = tiny.decoder(), tiny.decoder(dtype=torch.bfloat16).to(torch.bfloat16)
    sampling = Sampling(max_tokens=3)
    engine = start(rough, tokenizer, places=2)
    key = engine.add([1, 2, 3], sampling)
    assert run(engine)[key]
    tokens = torch.tensor([[1, 2, 3]])
    near = rough.logits(rough(tokens))
    assert torch.nn.functional.cosine_similarity(near, exact.logits(exact(tokens)), dim=-1).min() > 0.99
