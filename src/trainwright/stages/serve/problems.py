"""Errors of clients, in the JSON form that OpenAI's libraries turn into exceptions."""

from __future__ import annotations

from starlette.responses import JSONResponse


class ApiError(Exception):
    """A request that is refused.

    Args:
        status: of the HTTP answer.
        message: one clear line.
        param: the argument that is wrong, where it is one.
        code: a word for programs.
        kind: OpenAI's class of errors.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.kind = status, message, param, code, kind

    def response(self) -> JSONResponse:
        """Returns the HTTP answer."""
        headers = {"Retry-After": "1"} if self.status in {429, 503} else {}
        if self.status == 408:
            headers["Connection"] = "close"
        return JSONResponse({"error": self.body()}, status_code=self.status, headers=headers)

    def body(self) -> dict[str, str | None]:
        """Returns the ``error`` object."""
        return {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
