from __future__ import annotations

import contextlib
import gc
import json
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.stages.serve import requests
from trainwright.stages.serve.problems import ApiError
from trainwright.stages.serve.requests import ChatRequest, CompletionRequest

parse = partial(requests.parse, places=12)
USER = [{"role": "user", "content": "hi"}]


def completion(**arguments):
    return parse(CompletionRequest, json.dumps({"model": "m", "prompt": "p"} | arguments).encode())


def chat(**arguments):
    return parse(ChatRequest, json.dumps({"model": "m", "messages": USER} | arguments).encode())


def refused(ask, **arguments) -> ApiError:
    with pytest.raises(ApiError) as caught:
        ask(**arguments)
    assert caught.value.status == 400
    assert "\n" not in caught.value.message
    return caught.value


def test_defaults_are_openais():
    asked = completion()
    assert (asked.max_tokens, asked.temperature, asked.top_p, asked.n, asked.stop) == (16, 1.0, 1.0, 1, ())
    assert (asked.stream, asked.seed, asked.echo, asked.with_usage) == (False, None, False, False)
    assert chat().longest_answer is None


def test_null_is_as_good_as_absent():
    names = set(CompletionRequest.model_fields) - {"model", "prompt"}
    assert completion(**dict.fromkeys(names)) == completion()


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]]), ("", [""])],
)
def test_prompts(prompt, read):
    assert completion(prompt=prompt).prompt == read


def test_prompts_that_can_never_have_a_place_are_counted_before_each_is_checked(monkeypatch):
    looked_at = []
    monkeypatch.setattr(requests, "_is_tokens", looked_at.append)
    for prompt in ([[1]] * 13, ["a"] * 13, [[True]] * 13):
        assert refused(completion, prompt=prompt).code == "too_many_answers"
    assert looked_at == []
    assert completion(prompt=[1] * 13).prompt == [[1] * 13]


@pytest.mark.parametrize("body", [b'{"prompt": []}', b"{"])
def test_garbage_is_not_collected_while_a_body_is_read(monkeypatch, body):
    collecting, read = [], requests.from_json
    monkeypatch.setattr(requests, "from_json", lambda *given, **how: collecting.append(gc.isenabled()) or read(*given))
    with pytest.raises(ApiError):
        parse(CompletionRequest, body)
    assert collecting == [False]
    assert gc.isenabled()


@pytest.mark.parametrize("prompt", [[], 5, {"a": 1}, [1, "a"], [-1], [True], [[]], [[1.5]]])
def test_other_prompts_are_refused(prompt):
    assert refused(completion, prompt=prompt).message.startswith("prompt: expected a text, a list of texts")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("max_tokens", -1, "max_tokens: Input should be greater than or equal to 0 (seen -1)"),
        ("max_tokens", -5, "(seen -5)"),
        ("max_tokens", "9", 'max_tokens: Input should be a valid integer (seen "9")'),
        ("max_tokens", 1.5, "(seen 1.5)"),
        ("max_tokens", True, "(seen true)"),
        ("temperature", -0.1, "temperature: "),
        ("temperature", 2.1, "temperature: "),
        ("temperature", "hot", 'valid number (seen "hot")'),
        ("top_p", 1.1, "top_p: "),
        ("n", 0, "n: "),
        ("n", 129, "n: "),
        ("seed", 1.5, "seed: "),
        ("seed", 2**63, "seed: "),
        ("stream", "yes", "stream: "),
        ("stop", ["a"] * 5, "stop: expected a text or a list of at most 4 texts"),
        ("stop", "", "stop: "),
        ("stop", [1], "stop: "),
        ("model", 5, "model: "),
        ("stream_options", {"include_usage": True}, "stream_options goes with stream=true only"),
        ("stream_options", {"usage": True}, "stream_options.usage: "),
    ],
)
def test_wrong_values_are_named_and_shown(name, value, says):
    assert says in refused(completion, **{name: value}).message


def test_misspelt_and_unsupported_arguments_are_refused():
    error = refused(completion, temprature=1)
    assert error.message == "Unrecognized request argument supplied: temprature; did you mean 'temperature'?"
    assert (error.param, error.code) == ("temprature", "unknown_parameter")
    error = refused(completion, presence_penalty=0.5)
    assert (error.message, error.code) == ("presence_penalty=0.5 is not supported", "unsupported_parameter")
    assert "logprobs=5 is not supported" in refused(completion, logprobs=5).message
    assert "logprobs=true is not supported" in refused(chat, logprobs=True).message
    assert "tools=" in refused(chat, tools=[{"type": "function"}]).message
    assert "response_format=" in refused(chat, response_format={"type": "json_object"}).message


def test_what_asks_for_nothing_is_taken():
    assert completion(presence_penalty=0, frequency_penalty=0.0, logit_bias={}, best_of=1, user="u") == completion()
    assert chat(tools=[], response_format={"type": "text"}, store=False, metadata={"a": "b"}, logprobs=False) == chat()


def test_messages():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = chat(messages=[{"role": "developer", "content": "x"}, {"role": "user", "content": parts, "name": "me"}])
    assert [(message.role, message.content) for message in asked.messages] == [("developer", "x"), ("user", "ab")]
    assert refused(chat, messages=[]).param == "messages"
    assert refused(chat, messages=[{"role": "tool", "content": "x"}]).param == "messages.0.role"
    picture = [{"type": "image_url", "image_url": {"url": "x"}}]
    assert "parts of type 'text'" in refused(chat, messages=[{"role": "user", "content": picture}]).message


def test_both_names_of_the_token_limit():
    assert chat(max_tokens=5).longest_answer == 5
    assert chat(max_completion_tokens=7, max_tokens=5).longest_answer == 7


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000, b'"text"', b"null"])
def test_what_is_no_json_object(body):
    with pytest.raises(ApiError) as caught:
        parse(CompletionRequest, body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


def test_a_flood_of_wrong_values_is_counted():
    error = refused(completion, stream=True, stream_options={f"x{n}": n for n in range(1001)})
    assert error.message == "1001 values are wrong"
    assert "(seen 1)" in refused(chat, messages=[1] * 100_000).message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted({*CompletionRequest.model_fields, *ChatRequest.model_fields, "user", "tools", "unknown"})


@given(arguments=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5))
@settings(max_examples=200, deadline=None)
def test_any_json_is_read_or_refused(arguments):
    for cls in (CompletionRequest, ChatRequest):
        with contextlib.suppress(ApiError):
            assert parse(cls, json.dumps(arguments).encode()).model == arguments["model"]
