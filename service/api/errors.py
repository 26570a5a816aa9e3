"""Every failure as one JSON object: `schema`, `error`, `code`, `message`, with the status that fits.

A fault of the request is 4xx, whatever it is; 503 with `Retry-After` is a service that cannot do it now.
"""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ingest.core.errors import InfeasibleError, InputError, NotFoundError, TwinError, UsageError
from ingest.core.terminal import clipped
from service.session.inbox import OverloadedError, QuarantinedError, StoppedError

STATUS: dict[type[TwinError], int] = {
    InputError: 400,
    NotFoundError: 404,
    UsageError: 409,
    InfeasibleError: 422,
    QuarantinedError: 422,
    OverloadedError: 503,
    StoppedError: 503,
}
RETRY_S = "1"


def body(error: str, message: str, code: str = "") -> dict[str, Any]:
    """Return the object that says what is wrong; `code` is empty where HTTP's status says all."""
    return {"schema": "twin.error/1", "error": error, "code": code, "message": message}


def reply(status: int, error: str, message: str, code: str = "") -> JSONResponse:
    """Return a response with that object; 429 and 503 say when to try again."""
    later = {"Retry-After": RETRY_S} if status in (429, 503) else {}
    return JSONResponse(body(error, message, code), status, later)


def install(app: FastAPI) -> None:
    """Gives an app these answers."""

    @app.exception_handler(TwinError)
    async def handled(_: Request, error: TwinError) -> JSONResponse:
        return reply(STATUS.get(type(error), 500), type(error).__name__, str(error), error.code)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        answer = reply(error.status_code, "HTTPError", str(error.detail))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        faults = [
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()[:5]
        ]
        return reply(422, "ValidationError", clipped("; ".join(faults), 500), "request.invalid")
