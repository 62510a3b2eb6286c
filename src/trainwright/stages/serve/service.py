"""The state that all routes share: the model's name, tokenizer and limits, the worker, the metrics."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from trainwright import __version__
from trainwright.artifact.model_folder import TOKENIZER
from trainwright.model.conventions import Conventions, read_conventions, read_tokenizer
from trainwright.model.generation.prompts import PromptEncoder
from trainwright.model.generation.text_stream import TokenBytes
from trainwright.model.generation.texts import TextGenerator
from trainwright.spec.generation import Sampling
from trainwright.spec.sections.serve import EngineSection
from trainwright.stages.serve import chat
from trainwright.stages.serve.engines import open_engine
from trainwright.stages.serve.metrics import Gauge, ServerMetrics
from trainwright.stages.serve.problems import ApiError
from trainwright.stages.serve.requests import ChatRequest, CompletionRequest, check_places, short
from trainwright.stages.serve.worker import Worker

SHORT_TEXT = 1024
"""Characters that are encoded in less time than a change of threads costs others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A checked request, ready for the worker: prompts and settings of each choice, and what to answer with them.

    ``echoes`` are texts that the choices begin with; ``prompt_tokens`` counts each prompt once; ``max_tokens`` 0 asks
    for no more than the echoes.
    """

    prompts: Sequence[Sequence[int]]
    samplings: Sequence[Sampling]
    echoes: Sequence[str]
    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A loaded model and all that answers requests for it."""

    model_name: str
    created: int
    context_tokens: int
    vocabulary: int
    encoder: PromptEncoder
    token_bytes: TokenBytes
    conventions: Conventions
    render: chat.Render
    stops: tuple[str, ...]
    worker: Worker
    metrics: ServerMetrics
    api_key: str | None
    long_texts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """One long text is encoded at a time: each needs over a hundred times its size in memory."""

    async def completion(self, request: CompletionRequest) -> Order:
        """Returns the order of a ``/v1/completions`` request: every prompt ``n`` times.

        Raises:
            ApiError: another model is asked for, or a prompt cannot be completed.
        """
        self._check_model(request.model)
        check_places(len(request.prompt), request.n, self.worker.capacity)
        longest = self.context_tokens - min(request.max_tokens, 1)
        tokens = [await self._prompt(prompt, longest) for prompt in request.prompt]
        echoes = [self._echo(prompt) if request.echo else "" for prompt in request.prompt]
        return Order(
            prompts=[part for part in tokens for _ in range(request.n)],
            samplings=_samplings(request, request.max_tokens, prompts=len(tokens)),
            echoes=[echo for echo in echoes for _ in range(request.n)],
            prompt_tokens=sum(map(len, tokens)),
            max_tokens=request.max_tokens,
        )

    async def chat(self, request: ChatRequest) -> Order:
        """Returns the order of a ``/v1/chat/completions`` request.

        Raises:
            ApiError: another model is asked for, or the messages cannot be answered.
        """
        self._check_model(request.model)
        check_places(1, request.n, self.worker.capacity)
        prompt = await asyncio.to_thread(self.render, request.messages)
        # A chat template writes the special tokens itself.
        tokens = await self._encode(prompt, self.context_tokens - 1, param="messages", special=False)
        longest = request.longest_answer or self.context_tokens - len(tokens)
        return Order(
            prompts=[tokens] * request.n,
            samplings=_samplings(request, longest, prompts=1, stops=self.stops),
            echoes=[""] * request.n,
            prompt_tokens=len(tokens),
            max_tokens=longest,
        )

    async def _prompt(self, prompt: str | list[int], longest: int) -> list[int]:
        """Returns the tokens of one prompt of ``/v1/completions``."""
        if isinstance(prompt, str):
            return await self._encode(prompt, longest, param="prompt")
        self._check_length(len(prompt), longest, param="prompt")
        if max(prompt) >= self.vocabulary:
            message = f"token {max(prompt)} does not exist: the vocabulary has {self.vocabulary} tokens"
            raise ApiError(400, message, param="prompt", code="invalid_value")
        return prompt

    def _echo(self, prompt: str | list[int]) -> str:
        return prompt if isinstance(prompt, str) else self.token_bytes.text(prompt)

    async def _encode(self, text: str, longest: int, *, param: str, special: bool = True) -> list[int]:
        """Returns the tokens of a text; refuses a text that can never fit by its length, before any work."""
        self._check_length(self.encoder.fewest_tokens(text), longest, param=param, at_least=True)
        if len(text) <= SHORT_TEXT:
            tokens = self.encoder.encode(text, special=special)
        else:
            async with self.long_texts:
                tokens = await asyncio.to_thread(self.encoder.encode, text, special=special)
        start = self.conventions.start_id
        tokens = tokens if tokens or start is None else [start]
        if not tokens:
            raise ApiError(400, "the prompt is empty, and this model has no token to start from", param=param)
        self._check_length(len(tokens), longest, param=param)
        return tokens

    def _check_model(self, name: str) -> None:
        if name != self.model_name:
            message = f"the model {short(name)} does not exist; this server has {self.model_name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")

    def _check_length(self, tokens: int, longest: int, *, param: str, at_least: bool = False) -> None:
        if tokens > longest:
            message = (
                f"this model's context is {self.context_tokens} tokens, prompt and answer together; the prompt has "
                f"{'at least ' if at_least else ''}{tokens}, at most {longest} leave room for an answer"
            )
            raise ApiError(400, message, param=param, code="context_length_exceeded")


def _samplings(
    request: CompletionRequest | ChatRequest, max_tokens: int, *, prompts: int, stops: tuple[str, ...] = ()
) -> list[Sampling]:
    """Returns the settings of each choice; a request without a seed gets a random one."""
    seed = secrets.randbits(63) if request.seed is None else request.seed
    return [
        Sampling(
            max_tokens=max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=seed,
            choice=choice,
            stop=(*request.stop, *stops),
        )
        for _ in range(prompts)
        for choice in range(request.n)
    ]


def load_service(
    directory: Path,
    *,
    model_name: str,
    max_concurrent: int,
    max_waiting: int,
    engine: EngineSection | None = None,
    api_key: str | None = None,
) -> Service:
    """Loads a model from a trained artefact or a Hugging Face directory; does not start its worker.

    Raises:
        DataError: a file is missing or damaged.
        RecipeError: no such engine, or the model asks for something that it does not support.
    """
    generator = open_engine(engine or EngineSection(), directory, places=max_concurrent)
    tokenizer = read_tokenizer(directory / TOKENIZER)
    conventions = read_conventions(directory, tokenizer)
    token_bytes = TokenBytes(tokenizer)
    metrics = ServerMetrics()
    _add_gauges(metrics, model=model_name, engine=generator.name)
    texts = TextGenerator(generator, token_bytes, end_ids=conventions.end_ids)
    render: chat.Render = chat.plain
    stops: tuple[str, ...] = chat.PLAIN_STOP
    if conventions.chat_template is not None:
        render, stops = chat.templated(conventions.chat_template, conventions.special_tokens), ()
    return Service(
        model_name=model_name,
        created=int(directory.stat().st_mtime),
        context_tokens=generator.context_tokens,
        vocabulary=generator.vocabulary,
        encoder=PromptEncoder(tokenizer),
        token_bytes=token_bytes,
        conventions=conventions,
        render=render,
        stops=stops,
        worker=Worker(texts, places=generator.places, max_waiting=max_waiting, metrics=metrics),
        metrics=metrics,
        api_key=api_key,
    )


def _add_gauges(metrics: ServerMetrics, *, model: str, engine: str) -> None:
    process = psutil.Process()
    metrics.add("resident_memory_bytes", "memory of this process", Gauge(lambda: process.memory_info().rss))
    labels = {"version": __version__, "engine": engine, "model": model}
    metrics.add("build_info", "what is running; always 1", Gauge(lambda: 1.0, **labels))
