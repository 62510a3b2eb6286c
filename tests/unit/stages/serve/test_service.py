from __future__ import annotations

import asyncio
import json

import pytest
import torch

from trainwright.model import hf
from trainwright.stages.serve.problems import ApiError
from trainwright.stages.serve.requests import ChatRequest, CompletionRequest
from trainwright.stages.serve.service import load_service


def order(service, **arguments):
    return asyncio.run(service.completion(CompletionRequest(**({"model": "tiny", "prompt": "def"} | arguments))))


def test_every_choice_of_every_prompt_is_one_job(make_service, tiny):
    made = order(make_service(), prompt=["def", [7, 8]], n=2, seed=9, stop=["x"], max_tokens=5, echo=True)
    def_ids = tiny.tokenizer().encode("def").ids
    assert made.prompts == [def_ids, def_ids, [7, 8], [7, 8]]
    settings = [(s.seed, s.choice, s.stop, s.max_tokens) for s in made.samplings]
    assert settings == [(9, 0, ("x",), 5), (9, 1, ("x",), 5)] * 2
    assert made.echoes[0] == "def"
    assert made.prompt_tokens == len(def_ids) + 2


def test_without_a_seed_one_is_drawn(make_service):
    service = make_service()
    assert order(service).samplings[0].seed != order(service).samplings[0].seed


def test_a_chat_may_fill_the_context_and_ends_at_the_next_turn(make_service):
    request = ChatRequest.model_validate({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]})
    service = make_service()
    made = asyncio.run(service.chat(request))
    assert made.samplings[0].max_tokens == service.context_tokens - made.prompt_tokens
    assert made.samplings[0].stop == ("\nUser:",)


def test_a_bundle_with_a_chat_template_uses_it(tiny, tmp_path):
    model = tiny.decoder()
    hf.write(tmp_path, model.spec, dict(model.named_parameters()), dtype=torch.float32, extra={"eos_token_id": 0})
    made = tiny.tokenizer()
    made.save(str(tmp_path / "tokenizer.json"))
    settings = {"chat_template": "{{ eos_token }}{{ messages[0]['content'] }}", "eos_token": tiny.END}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    service = load_service(tmp_path, model_name="tiny", max_concurrent=1, max_waiting=0)
    request = ChatRequest.model_validate({"model": "tiny", "messages": [{"role": "user", "content": "def"}]})
    order_of_chat = asyncio.run(service.chat(request))
    assert order_of_chat.prompts == [[made.token_to_id(tiny.END), *made.encode("def").ids]]
    assert order_of_chat.samplings[0].stop == ()


def test_refusals(make_service):
    service = make_service()
    for arguments, code in [
        ({"model": "other"}, "model_not_found"),
        ({"prompt": [[1], [320]]}, "invalid_value"),
        ({"prompt": [1] * 600}, "context_length_exceeded"),
    ]:
        with pytest.raises(ApiError) as caught:
            order(service, **arguments)
        assert caught.value.code == code
