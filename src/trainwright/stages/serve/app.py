"""The routes. Nothing here blocks the event loop: the worker generates, and its pieces arrive through a queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainwright.model.generation.texts import Piece
from trainwright.stages.serve.answers import DONE, Answer, AnswerKind, Usage, sse
from trainwright.stages.serve.callers import AllowedHosts, Authenticated, Guarded
from trainwright.stages.serve.intake import Intake
from trainwright.stages.serve.metrics import CONTENT_TYPE, ServerMetrics
from trainwright.stages.serve.problems import ApiError
from trainwright.stages.serve.requests import ChatRequest, CompletionRequest, R, parse, short
from trainwright.stages.serve.service import Order, Service
from trainwright.stages.serve.worker import Busy, Deliver, GenerationJob, Lost, WorkerStopped

SMALL_BODY_BYTES = 64 << 10
"""Up to here a body is parsed in less time than a change of threads costs others."""

CLIENT_GONE = 499
"""Status that servers note when the client hung up before the answer."""

Arrival: TypeAlias = tuple[int, Piece | Lost] | None
"""Choice and what came for it; None: the client has gone."""


class Generation:
    """The choices of one request under way. Whatever ends it early gives their slots back."""

    def __init__(self, service: Service, order: Order, request: Request) -> None:
        self.order = order
        self.completion_tokens = 0
        self._worker = service.worker
        self._arrivals: asyncio.Queue[Arrival] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver_to(index: int) -> Deliver:
            def deliver(piece: Piece | Lost) -> None:
                loop.call_soon_threadsafe(self._arrivals.put_nowait, (index, piece))

            return deliver

        # An order for no tokens asks the engine nothing.
        answers = zip(order.prompts, order.samplings, strict=True) if order.max_tokens else ()
        self._jobs: list[GenerationJob] = self._worker.submit(
            [(prompt, sampling, deliver_to(index)) for index, (prompt, sampling) in enumerate(answers)]
        )
        self._watch = asyncio.create_task(self._watch_client(request))

    async def _watch_client(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.close()
        self._arrivals.put_nowait(None)

    def close(self) -> None:
        """Give up what is unfinished."""
        self._worker.cancel(self._jobs)

    async def pieces(self) -> AsyncIterator[tuple[int, Piece]]:
        """Choices and their pieces as they come, until all choices are finished.

        Raises:
            ClientDisconnect: nobody listens any more.
            ApiError: generation broke down, or the server stops.
        """
        running = len(self._jobs)
        try:
            if not self.order.max_tokens:
                for index in range(len(self.order.echoes)):
                    yield index, Piece(key=index, text="", finish="length")
            while running:
                arrival = await self._arrivals.get()
                if arrival is None:
                    raise ClientDisconnect
                index, piece = arrival
                if isinstance(piece, Lost):
                    raise _lost(piece)
                self.completion_tokens += 1
                running -= piece.finish is not None
                yield index, piece
        finally:
            self.close()
            self._watch.cancel()

    def usage(self) -> Usage:
        """Token counts so far."""
        return Usage(prompt_tokens=self.order.prompt_tokens, completion_tokens=self.completion_tokens)


def _lost(lost: Lost) -> ApiError:
    if lost.status == 400:
        return ApiError(400, lost.reason, param="prompt", code="invalid_value")
    code = "server_unavailable" if lost.status == 503 else "generation_failed"
    return ApiError(lost.status, lost.reason, code=code, kind="server_error")


async def _whole(generation: Generation, answer: Answer) -> Response:
    texts = list(generation.order.echoes)
    finishes = [""] * len(texts)
    async for index, piece in generation.pieces():
        texts[index] += piece.text
        finishes[index] = piece.finish or ""
    return JSONResponse(answer.whole(list(zip(texts, finishes, strict=True)), generation.usage()))


async def _streamed(generation: Generation, answer: Answer, *, with_usage: bool) -> AsyncIterator[str]:
    """Yields the chunks of a stream; an error after its beginning is a chunk too, because the status has been sent."""
    extra: dict[str, Any] = {"usage": None} if with_usage else {}
    try:
        for index, echo in enumerate(generation.order.echoes):
            opening = answer.opening(index) or (answer.part(index, echo, None) if echo else None)
            if opening is not None:
                yield sse(opening | extra)
        async for index, piece in generation.pieces():
            if piece.text:
                yield sse(answer.part(index, piece.text, None) | extra)
            if piece.finish is not None:
                yield sse(answer.part(index, "", piece.finish) | extra)
    except ClientDisconnect:
        return
    except ApiError as error:
        yield sse({"error": error.body()})
    else:
        if with_usage:
            yield sse(answer.closing(generation.usage()))
    yield DONE


async def _answer(service: Service, order: Order, request: Request, kind: AnswerKind, asked: Any) -> Response:
    try:
        generation = Generation(service, order, request)
    except Busy as error:
        message = "too many requests are waiting; try again later"
        raise ApiError(429, message, code="rate_limit_exceeded", kind="rate_limit_error") from error
    except WorkerStopped as error:
        raise ApiError(503, str(error), code="server_unavailable", kind="server_error") from error
    answer = Answer(kind=kind, model=service.model_name)
    if asked.stream:
        chunks = _streamed(generation, answer, with_usage=asked.with_usage)
        return StreamingResponse(chunks, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
    return await _whole(generation, answer)


async def _parsed(service: Service, cls: type[R], body: bytes) -> R:
    """Returns the request in a body; a large one is read in another thread."""
    read = partial(parse, cls, body, places=service.worker.capacity)
    return read() if len(body) <= SMALL_BODY_BYTES else await asyncio.to_thread(read)


def build_app(service: Service, hosts: AllowedHosts) -> Starlette:
    """Returns the application; it starts the service's worker and stops it at shutdown."""
    intake = Intake()

    async def completions(request: Request) -> Response:
        asked = await _parsed(service, CompletionRequest, await intake.body(request))
        return await _answer(service, await service.completion(asked), request, "completion", asked)

    async def chat_completions(request: Request) -> Response:
        asked = await _parsed(service, ChatRequest, await intake.body(request))
        return await _answer(service, await service.chat(asked), request, "chat", asked)

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model(service)]})

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        if name != service.model_name:
            raise ApiError(404, f"the model {short(name)} does not exist", param="model", code="model_not_found")
        return JSONResponse(_model(service))

    async def health(request: Request) -> Response:
        if service.worker.failure is not None:
            return JSONResponse({"status": "failed", "reason": service.worker.failure}, status_code=503)
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(service.metrics.render(), media_type=CONTENT_TYPE)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.worker.start()
        yield
        service.worker.stop()
        await asyncio.to_thread(service.worker.join)

    routes = [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", model, methods=["GET"]),
        Route("/health", health, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            ClientDisconnect: _client_gone,
            Exception: _defect,
        },
    )
    app.add_middleware(Authenticated, api_key=service.api_key)
    app.add_middleware(Guarded, hosts=hosts)
    app.add_middleware(RequestCounter, metrics=service.metrics, routes=frozenset(route.path for route in routes))
    return app


def _model(service: Service) -> dict[str, Any]:
    return {
        "id": service.model_name,
        "object": "model",
        "created": service.created,
        "owned_by": "trainwright",
        "context_tokens": service.context_tokens,
    }


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message, code = str(error.detail), None
    if error.status_code == 404:
        message, code = f"there is nothing at {request.url.path}", "not_found"
    elif error.status_code == 405:
        message, code = f"{request.url.path} does not take {request.method}", "method_not_allowed"
    answer = ApiError(error.status_code, message, code=code).response()
    answer.headers.update(error.headers or {})
    return answer


async def _client_gone(request: Request, error: Exception) -> Response:
    """Nobody reads this; its status is counted."""
    return Response(status_code=CLIENT_GONE)


async def _defect(request: Request, error: Exception) -> Response:
    """Our own mistake: the client gets an answer, the log gets the traceback (Starlette raises it again)."""
    return ApiError(500, "a defect in the server; its log says more", code="defect", kind="server_error").response()


class RequestCounter:
    """Counts answers by route and status; unknown paths are one route, so that nobody can make the list grow."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics, routes: frozenset[str]) -> None:
        self._app, self._metrics, self._routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and note the status of its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        route = "/v1/models/{name}" if path.startswith("/v1/models/") else path if path in self._routes else "other"

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.requests.add(route=route, status=str(message["status"]))
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            self._metrics.requests.add(route=route, status="500")
            raise
