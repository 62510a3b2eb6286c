"""What the routes share: the model's name, tokenizer and limits, the worker, the metrics."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from tokenizers import Tokenizer

from trainwright import __version__
from trainwright.model.bundle import load_bundle
from trainwright.model.conventions import Conventions, read_conventions
from trainwright.model.generate import Engine
from trainwright.model.sampling import Sampling
from trainwright.model.text_stream import TokenBytes
from trainwright.runtime.device import choose
from trainwright.stages.serve import chat
from trainwright.stages.serve.metrics import Gauge, Metrics
from trainwright.stages.serve.problems import ApiError
from trainwright.stages.serve.requests import ChatRequest, CompletionRequest
from trainwright.stages.serve.worker import Worker


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A checked request, ready for the worker: prompts and settings of each choice, and what to answer with them.

    ``echoes`` are texts that the choices begin with; ``prompt_tokens`` counts each prompt once.
    """

    prompts: Sequence[Sequence[int]]
    samplings: Sequence[Sampling]
    echoes: Sequence[str]
    prompt_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A loaded model and all that answers requests for it."""

    model_name: str
    created: int
    context_tokens: int
    vocabulary: int
    tokenizer: Tokenizer
    token_bytes: TokenBytes
    conventions: Conventions
    render: chat.Render
    stops: tuple[str, ...]
    worker: Worker
    metrics: Metrics
    api_key: str | None

    async def completion(self, request: CompletionRequest) -> Order:
        """The order behind ``/v1/completions``: every prompt ``n`` times.

        Raises:
            ApiError: another model is asked for, or a prompt cannot be completed.
        """
        self._check_model(request.model)
        tokens = [
            await self._encode(prompt) if isinstance(prompt, str) else self._checked_tokens(prompt)
            for prompt in request.prompt
        ]
        tokens = [self._checked_length(part, "prompt") for part in tokens]
        echoes = [
            "" if not request.echo else prompt if isinstance(prompt, str) else self.token_bytes.text(prompt)
            for prompt in request.prompt
        ]
        return Order(
            prompts=[part for part in tokens for _ in range(request.n)],
            samplings=_samplings(request, request.max_tokens, prompts=len(tokens)),
            echoes=[echo for echo in echoes for _ in range(request.n)],
            prompt_tokens=sum(map(len, tokens)),
        )

    async def chat(self, request: ChatRequest) -> Order:
        """The order behind ``/v1/chat/completions``.

        Raises:
            ApiError: another model is asked for, or the messages cannot be answered.
        """
        self._check_model(request.model)
        prompt = await asyncio.to_thread(self.render, request.messages)
        # A chat template writes the special tokens itself.
        tokens = self._checked_length(await self._encode(prompt, special=False), "messages")
        longest = request.longest_answer or self.context_tokens - len(tokens)
        return Order(
            prompts=[tokens] * request.n,
            samplings=_samplings(request, longest, prompts=1, stops=self.stops),
            echoes=[""] * request.n,
            prompt_tokens=len(tokens),
        )

    async def _encode(self, text: str, *, special: bool = True) -> list[int]:
        # Off the event loop: a long text takes a while.
        encoding = await asyncio.to_thread(self.tokenizer.encode, text, add_special_tokens=special)
        tokens: list[int] = encoding.ids
        start = self.conventions.start_id
        return tokens if tokens or start is None else [start]

    def _check_model(self, name: str) -> None:
        if name != self.model_name:
            message = f"the model {name!r} does not exist; this server has {self.model_name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def _checked_tokens(self, tokens: list[int]) -> list[int]:
        if max(tokens) >= self.vocabulary:
            message = f"token {max(tokens)} does not exist: the vocabulary has {self.vocabulary} tokens"
            raise ApiError(400, message, param="prompt", code="invalid_value")
        return tokens

    def _checked_length(self, tokens: list[int], param: str) -> list[int]:
        if not tokens:
            raise ApiError(400, "the prompt is empty, and this model has no token to start from", param=param)
        if len(tokens) >= self.context_tokens:
            message = (
                f"this model's context is {self.context_tokens} tokens, prompt and answer together; "
                f"the prompt has {len(tokens)}, at most {self.context_tokens - 1} leave room for an answer"
            )
            raise ApiError(400, message, param=param, code="context_length_exceeded")
        return tokens


def _samplings(
    request: CompletionRequest | ChatRequest, max_tokens: int, *, prompts: int, stops: tuple[str, ...] = ()
) -> list[Sampling]:
    """The settings of each choice. Without a seed each request draws its own."""
    seed = secrets.randbits(63) if request.seed is None else request.seed
    return [
        Sampling(
            max_tokens=max_tokens, temperature=request.temperature, top_p=request.top_p,
            seed=seed, choice=choice, stop=(*request.stop, *stops),
        )
        for _ in range(prompts)
        for choice in range(request.n)
    ]  # fmt: skip


def load_service(
    directory: Path, *, model_name: str, max_concurrent: int, max_waiting: int, api_key: str | None = None
) -> Service:
    """Load a model from a trained artefact or a Hugging Face directory; its worker is not started yet.

    Raises:
        DataError: a file is missing or damaged.
        RecipeError: the model asks for something that is not supported.
    """
    device = choose().torch_device
    # On a CPU a lone sequence decodes faster in fp32 than in bf16 (benchmarks/serve.py).
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    model, tokenizer = load_bundle(directory, device=device, dtype=dtype)
    conventions = read_conventions(directory, tokenizer)
    token_bytes = TokenBytes(tokenizer)
    metrics = Metrics()
    engine = Engine(model, token_bytes, end_ids=conventions.end_ids, slots=max_concurrent)
    worker = Worker(engine, slots=max_concurrent, max_waiting=max_waiting, metrics=metrics)
    _add_gauges(metrics, model_name)
    render: chat.Render = chat.plain
    stops: tuple[str, ...] = chat.PLAIN_STOP
    if conventions.chat_template is not None:
        render, stops = chat.templated(conventions.chat_template, conventions.special_tokens), ()
    return Service(
        model_name=model_name, created=int(directory.stat().st_mtime), context_tokens=engine.max_tokens,
        vocabulary=model.spec.vocabulary, tokenizer=tokenizer, token_bytes=token_bytes, conventions=conventions,
        render=render, stops=stops, worker=worker, metrics=metrics, api_key=api_key,
    )  # fmt: skip


def _add_gauges(metrics: Metrics, model_name: str) -> None:
    process = psutil.Process()
    metrics.add("resident_memory_bytes", "memory of this process", Gauge(lambda: process.memory_info().rss))
    labels: dict[str, Any] = {"version": __version__, "torch": torch.__version__, "model": model_name}
    metrics.add("build_info", "what is running; always 1", Gauge(lambda: 1.0, **labels))
