"""The requests: OpenAI's arguments, checked. An unsupported argument that would change the answer is refused."""

from __future__ import annotations

import gc
import itertools
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from trainwright.core.spelling import did_you_mean
from trainwright.stages.serve.problems import ApiError

MAX_STOPS = 4
MAX_CHOICES = 128
MAX_PROBLEMS = 1000
"""Above this number, wrong values are counted and not described."""

WITHOUT_EFFECT = frozenset(("metadata", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user"))
"""Arguments that do not change the answer."""

ONLY_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": (),
    "web_search_options": (),
}
"""OpenAI's arguments that are not supported, with the values (beside null) that ask for nothing."""


def _prompts(value: Any) -> list[str | list[int]]:
    """Returns one prompt or several, each a text or its tokens."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if all(_is_token(item) for item in value):
            return [value]
        if all(isinstance(item, str) or _is_tokens(item) for item in value):
            return value
    raise ValueError("expected a text, a list of texts, a list of token ids, or a list of such lists")


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_token, value))


def _stops(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list) and len(texts) <= MAX_STOPS and all(isinstance(text, str) and text for text in texts):
        return tuple(texts)
    raise ValueError(f"expected a text or a list of at most {MAX_STOPS} texts, none of them empty")


def _text(value: Any) -> str:
    """Returns a message's content: a text, or the joined parts of type text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str) for part in value
    ):
        return "".join(part["text"] for part in value)
    raise ValueError("expected a text or a list of parts of type 'text'")


class StreamOptions(BaseModel):
    """Settings of a stream."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    include_usage: bool = False
    include_obfuscation: bool = False


class _Request(BaseModel):
    """The arguments that both kinds of request have."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    model: str
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, ge=0, le=1)
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    stop: Annotated[tuple[str, ...], BeforeValidator(_stops)] = ()
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stream: bool = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _options_go_with_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options goes with stream=true only")
        return self

    @property
    def with_usage(self) -> bool:
        """Returns whether a stream ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(_Request):
    """``POST /v1/completions``."""

    prompt: Annotated[list[str | list[int]], PlainValidator(_prompts)]
    max_tokens: int = Field(16, ge=0)
    echo: bool = False


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_text)]
    name: str | None = None
    refusal: str | None = None


class ChatRequest(_Request):
    """``POST /v1/chat/completions``; without ``max_completion_tokens`` the answer may fill the context."""

    messages: Annotated[list[Message], FailFast()] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)

    @property
    def longest_answer(self) -> int | None:
        """Returns the token limit under its new or its old name."""
        return self.max_completion_tokens or self.max_tokens


R = TypeVar("R", bound=_Request)


def check_places(prompts: int, choices: int, places: int) -> None:
    """Raises an ApiError where so many answers can never have a place at once."""
    if prompts * choices > places:
        message = (
            f"{prompts * choices} answers in one request can never have a place: this server has "
            f"{places} (serve.max_concurrent and serve.max_waiting together)"
        )
        raise ApiError(400, message, param="n" if choices > 1 else "prompt", code="too_many_answers")


def parse(cls: type[R], body: bytes, *, places: int) -> R:
    """Returns the request in a body.

    Args:
        cls: its kind.
        body: of the HTTP request.
        places: answers that the server can ever have under way; more prompts are refused before each is checked.

    Raises:
        ApiError: it is no JSON object, or an argument is unknown, unsupported, missing or wrong; names the first.
    """
    arguments = {key: value for key, value in _object(body).items() if value is not None and key not in WITHOUT_EFFECT}
    for key in [key for key in arguments if key in ONLY_NEUTRAL]:
        value = arguments.pop(key)
        if value not in ONLY_NEUTRAL[key]:
            raise ApiError(400, f"{key}={short(value)} is not supported", param=key, code="unsupported_parameter")
    for key in arguments:
        if key not in cls.model_fields:
            name = key[:80]
            hint = did_you_mean(name, list(cls.model_fields))
            message = f"Unrecognized request argument supplied: {name}" + (f"; {hint}" if hint else "")
            raise ApiError(400, message, param=name, code="unknown_parameter")
    prompt = arguments.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
        check_places(len(prompt), 1, places)
    try:
        return cls.model_validate(arguments)
    except ValidationError as error:
        raise _problem(error) from error


def _object(body: bytes) -> dict[str, Any]:
    collects = gc.isenabled()
    gc.disable()  # it would look at a million lists again and again while they are made: two thirds of the time
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from error
    finally:
        if collects:
            gc.enable()
    if not isinstance(value, dict):
        raise ApiError(400, f"the body is not a JSON object, but {short(value)}", code="invalid_json")
    return value


def _problem(error: ValidationError) -> ApiError:
    if error.error_count() > MAX_PROBLEMS:
        return ApiError(400, f"{error.error_count()} values are wrong", code="invalid_value")
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "missing":
        return ApiError(400, f"you must provide {where}", param=where, code="missing_required_parameter")
    line = f"{where}: {message} (seen {short(first['input'])})" if where else message
    return ApiError(400, line, param=where or None, code="invalid_value")


def short(value: Any) -> str:
    """Returns the beginning of a value as JSON, for an error line."""
    text = json.dumps(_clipped(value), ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _clipped(value: Any) -> Any:
    """Returns the first members of a value: enough to show, however large it is."""
    if isinstance(value, str):
        return value[:80]
    if isinstance(value, list):
        return [_clipped(item) for item in value[:40]]
    if isinstance(value, dict):
        return {key[:80]: _clipped(item) for key, item in itertools.islice(value.items(), 10)}
    return value
