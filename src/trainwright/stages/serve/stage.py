"""The stage: serves the exported model for a moment and asks it the recipe's question as any client would."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any

from trainwright.artifact.bundle import SERVED
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import write_atomically
from trainwright.core.errors import MachineError
from trainwright.spec.sections.serve import ServeDemo
from trainwright.stages.serve.server import Server, listen
from trainwright.stages.serve.service import load_service

HOST = "127.0.0.1"
START_S = 60.0
ANSWER_S = 600.0


def run(context: Context) -> StageResult:
    """Start the server on a free port of the loopback, check it, ask ``serve.demo``, and stop it.

    A model with a chat template is asked in a chat, any other one to go on from the prompt.

    Raises:
        DataError: the bundle is damaged.
        MachineError: the server does not answer.
    """
    recipe, bundle, events = context.recipe, context.input("bundle"), context.events
    bundle.verify()
    section = recipe.serve
    service = load_service(
        bundle.path / SERVED,
        model_name=section.model_name or recipe.name,
        max_concurrent=section.max_concurrent,
        max_waiting=section.max_waiting,
        engine=section.engine,
    )
    with Server(service, listen(HOST, 0)) as server:
        events.message(f"serving {service.model_name} at {server.url}")
        health = wait_until_healthy(server.port)
        models = _call(server.port, "GET", "/v1/models")
        in_chat = service.conventions.chat_template is not None
        body = None if section.demo is None else _question(section.demo, service.model_name, in_chat=in_chat)
        answer = None if body is None else _ask(server.port, body)
    transcript: dict[str, Any] = {"health": health, "models": models} | (answer or {})
    if answer is None:
        summary: dict[str, Any] = {"model": service.model_name, "answers": True}
    else:
        transcript["time_to_first_token_s"] = service.metrics.time_to_first_token.sum
        summary = {
            "model": service.model_name,
            "tokens_per_s": answer["tokens_per_s"],
            "time_to_first_token_s": transcript["time_to_first_token_s"],
            "completion_tokens": answer["response"]["usage"]["completion_tokens"],
            "finish_reason": answer["response"]["choices"][0]["finish_reason"],
            "chat": in_chat,
            "prompt": answer["prompt"],
            "answer": answer["answer"],
        }
        events.metric("serve/tokens_per_s", answer["tokens_per_s"], unit="tokens/s")
        events.metric("serve/time_to_first_token", transcript["time_to_first_token_s"], unit="s")
    write_atomically(context.out / "answer.json", json.dumps(transcript, indent=1, ensure_ascii=False).encode() + b"\n")
    return StageResult(summary=summary)


def wait_until_healthy(port: int) -> dict[str, Any]:
    """Returns the answer of ``/health`` as soon as there is one.

    Raises:
        MachineError: there is none within ``START_S``.
    """
    deadline = time.monotonic() + START_S
    while True:
        try:
            return _call(port, "GET", "/health")
        except OSError as error:
            if time.monotonic() > deadline:
                raise MachineError(
                    "the server does not answer within {seconds:g} s",
                    where=f"{HOST}:{port}",
                    seen=str(error),
                    seconds=START_S,
                ) from error
        time.sleep(0.02)


def _question(demo: ServeDemo, model: str, *, in_chat: bool) -> dict[str, Any]:
    """Returns the body of the request: the prompt is the user's message in a chat, or a text to go on from."""
    asked = {"messages": [{"role": "user", "content": demo.prompt}]} if in_chat else {"prompt": demo.prompt}
    limits = {"max_tokens": demo.max_tokens, "temperature": demo.temperature, "seed": demo.seed}
    return {"model": model} | asked | limits


def _ask(port: int, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the request, the response, what was asked and answered in words, and how long it took."""
    in_chat = "messages" in body
    path = "/v1/chat/completions" if in_chat else "/v1/completions"
    started = time.perf_counter()
    response = _call(port, "POST", path, body)
    seconds = time.perf_counter() - started
    choice = response["choices"][0]
    return {
        "request": {"method": "POST", "path": path, "body": body},
        "response": response,
        "prompt": body["messages"][0]["content"] if in_chat else body["prompt"],
        "answer": choice["message"]["content"] if in_chat else choice["text"],
        "seconds": seconds,
        "tokens_per_s": response["usage"]["completion_tokens"] / seconds,
    }


def _call(port: int, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_S)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, body=text, headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read().decode()
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise MachineError(
            "the server refused the recipe's question", where=f"{method} {path}", seen=f"{answer.status} {content}"
        )
    document: dict[str, Any] = json.loads(content)
    return document
