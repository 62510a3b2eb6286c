from __future__ import annotations

import contextlib
import http.client
import json
import socket
from unittest.mock import Mock

import openai
import pytest

from trainwright.model.bundle import load_bundle
from trainwright.model.generation.generate import complete
from trainwright.model.generation.prompts import PromptEncoder
from trainwright.spec.generation import Sampling


@pytest.fixture
def client(serve):
    server, _ = serve()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as made:
        yield made


@pytest.fixture
def expected(bundle):
    """What the model says, asked without a server."""
    model, tokenizer = load_bundle(bundle)

    def ask(prompt, **sampling):
        return complete(model, tokenizer, [prompt], Sampling(**sampling), end_ids=frozenset())[0].text

    return ask


def call(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request(method, path, body=body, headers=headers or {})
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer, json.loads(content) if answer.headers["content-type"] == "application/json" else content


JSON = {"Content-Type": "application/json"}
HEAD = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def post(server, path, **body):
    return call(server, "POST", path, json.dumps(body), JSON)


class TestCompletions:
    def test_greedy_answer_is_the_models(self, client, expected):
        made = client.completions.create(model="tiny", prompt="def add", max_tokens=12, temperature=0)
        assert made.object == "text_completion"
        assert made.id.startswith("cmpl-")
        assert made.choices[0].text == expected("def add", max_tokens=12)
        assert made.choices[0].finish_reason == "length"
        assert made.usage.completion_tokens == 12
        assert made.usage.total_tokens == made.usage.prompt_tokens + 12

    def test_stream_gives_the_same_text_and_the_usage_last(self, client, expected):
        chunks = list(
            client.completions.create(
                model="tiny",
                prompt="你好",
                max_tokens=30,
                temperature=0.8,
                top_p=0.9,
                seed=5,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
        assert text == expected("你好", max_tokens=30, temperature=0.8, top_p=0.9, seed=5)
        assert chunks[-1].choices == []
        assert chunks[-1].usage.completion_tokens == 30
        assert all(chunk.usage is None for chunk in chunks[:-1])
        assert [chunk.choices[0].finish_reason for chunk in chunks[:-1] if chunk.choices[0].finish_reason] == ["length"]
        assert len({chunk.id for chunk in chunks}) == 1

    def test_several_prompts_and_choices_keep_their_order(self, client, expected):
        made = client.completions.create(
            model="tiny", prompt=["def", "for x"], n=2, max_tokens=8, temperature=1, seed=3, echo=True
        )
        settings = [(p, c) for p in ("def", "for x") for c in (0, 1)]
        wanted = [p + expected(p, max_tokens=8, temperature=1.0, seed=3, choice=c) for p, c in settings]
        assert [choice.text for choice in made.choices] == wanted
        assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
        assert made.usage.completion_tokens == 32

    def test_prompt_as_tokens_and_as_lists_of_tokens(self, client, tiny, expected):
        ids = tiny.tokenizer().encode("values").ids
        for prompt in (ids, [ids]):
            made = client.completions.create(model="tiny", prompt=prompt, max_tokens=5, temperature=0, echo=True)
            assert made.choices[0].text == "values" + expected("values", max_tokens=5)

    def test_stop_texts_end_the_answer(self, client, expected):
        whole = expected("def add", max_tokens=40)
        stop = whole[10:13]
        for stops in (stop, ["never there", stop]):
            made = client.completions.create(model="tiny", prompt="def add", max_tokens=40, temperature=0, stop=stops)
            assert made.choices[0].text == whole[: whole.index(stop)]
            assert made.choices[0].finish_reason == "stop"

    def test_without_a_seed_answers_differ(self, client):
        made = {client.completions.create(model="tiny", prompt="x", max_tokens=20).choices[0].text for _ in range(3)}
        assert len(made) == 3

    def test_an_empty_prompt_starts_a_text(self, client):
        assert client.completions.create(model="tiny", prompt="", max_tokens=3).usage.prompt_tokens == 1

    def test_echo_in_a_stream_comes_first(self, serve):
        server, _ = serve()
        body = {"model": "tiny", "prompt": "def", "max_tokens": 2, "stream": True, "echo": True}
        answer, text = post(server, "/v1/completions", **body)
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = text.strip().split("\n\n")
        assert events[-1] == "data: [DONE]"
        assert json.loads(events[0].removeprefix("data: "))["choices"][0]["text"] == "def"

    @pytest.mark.parametrize(("echo", "text"), [(True, "def add"), (False, "")])
    def test_no_tokens_at_all_are_a_legal_wish(self, client, echo, text):
        made = client.completions.create(model="tiny", prompt=["def add", "x"], max_tokens=0, echo=echo)
        assert [choice.text for choice in made.choices] == [text, "x" if echo else ""]
        assert {choice.finish_reason for choice in made.choices} == {"length"}
        assert made.usage.completion_tokens == 0
        assert made.usage.total_tokens == made.usage.prompt_tokens > 0
        stream = client.completions.create(model="tiny", prompt="def add", max_tokens=0, echo=echo, stream=True)
        chunks = [(chunk.choices[0].text, chunk.choices[0].finish_reason) for chunk in stream]
        assert chunks == [*([("def add", None)] if echo else []), ("", "length")]

    def test_without_an_answer_the_prompt_may_fill_the_context(self, client):
        made = client.completions.create(model="tiny", prompt=[1] * 512, max_tokens=0)
        assert made.usage.prompt_tokens == 512
        with pytest.raises(openai.BadRequestError, match="at most 512"):
            client.completions.create(model="tiny", prompt=[1] * 513, max_tokens=0)


class TestChat:
    MESSAGES = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    )

    def test_plain_form_without_a_template(self, client, expected):
        made = client.chat.completions.create(model="tiny", messages=self.MESSAGES, max_tokens=10, temperature=0)
        prompt = "System: Be brief.\n\nUser: Hi\n\nAssistant:"
        assert made.object == "chat.completion"
        assert made.choices[0].message.role == "assistant"
        assert made.choices[0].message.content == expected(prompt, max_tokens=10)

    def test_stream(self, client, expected):
        stream = client.chat.completions.create(
            model="tiny", messages=self.MESSAGES, max_completion_tokens=10, temperature=0, stream=True
        )
        chunks = list(stream)
        assert chunks[0].choices[0].delta.role == "assistant"
        assert chunks[0].object == "chat.completion.chunk"
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == expected("System: Be brief.\n\nUser: Hi\n\nAssistant:", max_tokens=10)
        assert chunks[-1].choices[0].finish_reason == "length"

    def test_without_a_limit_the_answer_may_fill_the_context(self, client):
        made = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Hi"}], temperature=0)
        assert made.usage.total_tokens == 512


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "status", "code", "message"),
        [
            ("{", 400, "invalid_json", "the body is not valid JSON"),
            ("[1]", 400, "invalid_json", "not a JSON object, but [1]"),
            ('{"model": "tiny"}', 400, "missing_required_parameter", "you must provide prompt"),
            ('{"model": "other", "prompt": "x"}', 404, "model_not_found", "does not exist; this server has 'tiny'"),
            ('{"model": "tiny", "prompt": [320]}', 400, "invalid_value", "token 320 does not exist"),
            ('{"model": "tiny", "prompt": "x", "max_tokens": -1}', 400, "invalid_value", "max_tokens: "),
        ],
    )
    def test_completions(self, serve, body, status, code, message):
        server, _ = serve()
        answer, content = call(server, "POST", "/v1/completions", body, JSON)
        assert answer.status == status
        assert content["error"]["code"] == code
        assert message in content["error"]["message"]
        assert content["error"]["type"] == "invalid_request_error"

    def test_openais_client_raises_its_own_errors(self, client):
        with pytest.raises(openai.BadRequestError, match="temperature: .*less than or equal to 2"):
            client.completions.create(model="tiny", prompt="x", temperature=3)
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.completions.create(model="nope", prompt="x")

    def test_a_prompt_that_fills_the_context_is_refused_with_the_numbers(self, client):
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="tiny", prompt=[1] * 512, max_tokens=1)
        assert caught.value.code == "context_length_exceeded"
        assert "context is 512 tokens" in caught.value.message
        assert "the prompt has 512" in caught.value.message
        made = client.completions.create(model="tiny", prompt=[1] * 511, max_tokens=50, temperature=0)
        assert (made.usage.completion_tokens, made.choices[0].finish_reason) == (1, "length")

    @pytest.mark.parametrize("field", ["prompt", "stop", "model"])
    def test_half_a_surrogate_pair_is_no_text(self, serve, field):
        server, _ = serve()
        body = json.dumps({"model": "tiny", "prompt": "x", field: "a\ud800b"})
        answer, content = call(server, "POST", "/v1/completions", body, JSON)
        assert (answer.status, content["error"]["code"]) == (400, "invalid_json")

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/completions", {"prompt": "x" * 8_000_000}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 8_000_000}]}),
        ],
    )
    def test_a_text_that_can_never_fit_is_not_tokenised(self, serve, monkeypatch, path, body):
        encoded = []
        monkeypatch.setattr(PromptEncoder, "encode", lambda self, text, **options: encoded.append(text))
        server, _ = serve()
        answer, content = post(server, path, model="tiny", **body)
        assert (answer.status, content["error"]["code"]) == (400, "context_length_exceeded")
        assert "the prompt has at least 6153" in content["error"]["message"]
        assert encoded == []

    def test_what_can_never_have_a_place_is_refused_for_good(self, serve):
        server, _ = serve(max_concurrent=2, max_waiting=3)
        for body, param in [({"prompt": "a", "n": 6}, "n"), ({"prompt": ["a"] * 6}, "prompt")]:
            answer, content = post(server, "/v1/completions", model="tiny", **body)
            assert (answer.status, content["error"]["code"]) == (400, "too_many_answers")
            assert content["error"]["param"] == param
            assert "6 answers in one request can never have a place: this server has 5" in content["error"]["message"]
            assert "retry-after" not in answer.headers
        messages = [{"role": "user", "content": "a"}]
        assert post(server, "/v1/chat/completions", model="tiny", messages=messages, n=6)[0].status == 400
        assert post(server, "/v1/completions", model="tiny", prompt="a", n=5, max_tokens=1)[0].status == 200

    def test_long_names_are_shown_in_short(self, serve):
        server, _ = serve()
        for body in ({"model": "m" * 100_000, "prompt": "a"}, {"model": "tiny", "prompt": "a", "x" * 100_000: 1}):
            answer, content = post(server, "/v1/completions", **body)
            assert answer.status in {400, 404}
            assert len(content["error"]["message"]) < 300

    def test_unknown_route_and_method(self, serve):
        server, service = serve()
        answer, content = call(server, "GET", "/v2/nothing")
        assert (answer.status, content["error"]["code"]) == (404, "not_found")
        answer, content = call(server, "GET", "/v1/completions")
        assert (answer.status, content["error"]["code"]) == (405, "method_not_allowed")
        assert service.metrics.requests.value(route="other", status="404") == 1

    def test_a_body_too_large_to_be_a_request(self, serve):
        server, _ = serve()
        answer, content = call(server, "POST", "/v1/completions", " " * ((8 << 20) + 1), JSON)
        assert (answer.status, content["error"]["code"]) == (413, "request_too_large")

    def test_more_than_may_wait(self, serve, slow):
        server, _ = serve(max_concurrent=1, max_waiting=1)
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as busy:
            body = {"model": "tiny", "prompt": ["a"] * 2, "max_tokens": 400, "stream": True}
            busy.request("POST", "/v1/completions", json.dumps(body), JSON)
            busy.getresponse()
            answer, content = post(server, "/v1/completions", model="tiny", prompt=["a"] * 2)
        assert (answer.status, content["error"]["code"]) == (429, "rate_limit_exceeded")
        assert answer.headers["retry-after"] == "1"


class TestModelsHealthMetrics:
    def test_models(self, client):
        (model,) = client.models.list().data
        assert (model.id, model.owned_by) == ("tiny", "trainwright")
        assert client.models.retrieve("tiny").id == "tiny"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("another/name")

    def test_health_and_metrics(self, serve):
        server, _ = serve()
        assert call(server, "GET", "/health")[1] == {"status": "ok"}
        post(server, "/v1/completions", model="tiny", prompt=[1, 2, 3], max_tokens=4)
        answer, text = call(server, "GET", "/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert values['trainwright_http_requests_total{route="/v1/completions",status="200"}'] == "1"
        assert values["trainwright_prompt_tokens_total"] == "3"
        assert values["trainwright_completion_tokens_total"] == "4"
        assert values["trainwright_time_to_first_token_seconds_count"] == "1"
        assert values["trainwright_time_per_token_seconds_count"] == "3"
        assert values["trainwright_requests_active"] == values["trainwright_requests_waiting"] == "0"
        assert float(values["trainwright_resident_memory_bytes"]) > 1e7
        assert any(name.startswith("trainwright_build_info{") for name in values)


class TestKey:
    def test_everything_but_health_asks_for_it(self, serve):
        server, _ = serve(api_key="s3cret")
        assert call(server, "GET", "/health")[0].status == 200
        for path in ("/v1/models", "/metrics"):
            answer, content = call(server, "GET", path)
            assert (answer.status, content["error"]["code"]) == (401, "invalid_api_key")
        wrong = {"Authorization": "Bearer s3cre"}
        assert call(server, "GET", "/v1/models", headers=wrong)[0].status == 401
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="s3cret") as client:
            assert client.models.list().data


class TestClientsThatLeave:
    def request(self, server, *, stream):
        body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 500, "stream": stream}).encode()
        connection = socket.create_connection(("127.0.0.1", server.port))
        head = HEAD + f"Content-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return connection

    @pytest.mark.parametrize("stream", [True, False])
    def test_their_slots_are_free_again(self, serve, slow, eventually, stream):
        server, service = serve(max_concurrent=1, max_waiting=0)
        connection = self.request(server, stream=stream)
        if stream:
            assert b"200 OK" in connection.recv(1000)
        eventually(lambda: service.metrics.completion_tokens.value() >= 3)
        assert post(server, "/v1/completions", model="tiny", prompt="y")[0].status == 429
        connection.close()
        eventually(lambda: service.worker.active == 0)
        assert service.metrics.cancelled.value() == 1
        assert service.metrics.completion_tokens.value() < 400
        assert post(server, "/v1/completions", model="tiny", prompt="y", max_tokens=2)[0].status == 200

    def test_while_still_sending_the_body(self, serve, eventually):
        server, service = serve()
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(f"{HEAD}Content-Length: 100\r\n\r\n{{".encode())
        connection.close()
        eventually(lambda: service.metrics.requests.value(route="/v1/completions", status="499") == 1)


class TestShutdown:
    def test_answers_within_the_grace_are_finished(self, serve, slow):
        server, _ = serve(grace_s=20)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
            stream = client.completions.create(model="tiny", prompt="x", max_tokens=20, temperature=0, stream=True)
            first = next(iter(stream))
            server.ask_to_stop()
            rest = list(stream)
        assert rest[-1].choices[0].finish_reason == "length"
        assert first.choices[0].index == 0

    def test_after_it_streams_end_with_an_error_and_nothing_hangs(self, serve, slow):
        server, _ = serve(grace_s=0.1)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
            stream = client.completions.create(model="tiny", prompt="x", max_tokens=500, stream=True)
            next(iter(stream))
            server.ask_to_stop()
            with pytest.raises(openai.APIError, match="the server is stopping"):
                list(stream)
        server.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), timeout=1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [RuntimeError("out of memory"), SystemExit(0)], ids=repr)
def test_a_broken_engine_is_told_to_everyone(serve, monkeypatch, eventually, error):
    from trainwright.stages.serve import service as module

    opened = module.open_engine

    def open_broken(*arguments, **settings):
        engine = opened(*arguments, **settings)
        engine.step = Mock(side_effect=error)
        return engine

    monkeypatch.setattr(module, "open_engine", open_broken)
    server, _ = serve()
    answer, content = post(server, "/v1/completions", model="tiny", prompt="x")
    assert answer.status == 503
    assert content["error"] == {
        "message": f"generation broke down: {type(error).__name__}: {error}",
        "type": "server_error",
        "param": None,
        "code": "server_unavailable",
    }
    answer, content = call(server, "GET", "/health")
    assert (answer.status, content["status"]) == (503, "failed")
    assert post(server, "/v1/completions", model="tiny", prompt="x")[0].status == 503
