"""Errors of the service: one JSON form for all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from joem.errors import JoemError, UnknownWord

_MEANINGS = {
    400: "The request or the picture cannot be read.",
    401: "The bearer token is missing or wrong.",
    404: "There is no such scene or sample.",
    408: "The request took too long to arrive.",
    413: "The body or the picture is too large.",
    415: "The body is not a picture of a known kind.",
    421: "The host is not a name of this service.",
    422: "A value is not allowed, or a word has no vector.",
    429: "This address already has too many connections, or requests under way.",
    503: "The service is busy.",
    504: "The work took too long.",
}

_NOT_OURS = {
    400: "The body is not JSON in UTF-8.",
    404: "There is nothing at this address: /openapi.json lists what there is.",
    405: "This address does not take this method: /openapi.json lists what there is.",
}
"""What is said where the framework refuses a request by itself."""

_TOLD = 3  # of the errors in one request


class Failure(BaseModel):
    """What every error answers."""

    message: str
    """What was got, what was expected, what to do."""
    word: str | None = None
    """The word that has no vector, if that is the problem."""
    near: list[str] | None = None
    """Words like it that have one."""


class Refusal(HTTPException):
    """Raised anywhere below a request to answer it with an error.

    Args:
        status: of the answer.
        message: what was got, what was expected, what to do.
        headers: of the answer.
        wait: seconds after which it is worth asking again.
    """

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None, wait: int | None = None
    ) -> None:
        after = {} if wait is None else {"Retry-After": str(wait)}
        super().__init__(status, message, {**(headers or {}), **after})


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of the errors that a route can answer."""
    return {status: {"model": Failure, "description": _MEANINGS[status]} for status in statuses}


def answer(status: int, failure: Failure, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response that tells a failure."""
    return JSONResponse(failure.model_dump(exclude_none=True), status, headers)


def refused(error: HTTPException) -> JSONResponse:
    """The response that tells a refusal, ours or the framework's."""
    message = error.detail if isinstance(error, Refusal) else _NOT_OURS.get(error.status_code, error.detail)
    return answer(error.status_code, Failure(message=message), error.headers)


def install(app: FastAPI) -> None:
    """Give every error that can leave a route the one JSON form."""

    @app.exception_handler(HTTPException)
    def not_answered(_: Request, error: HTTPException) -> JSONResponse:
        return refused(error)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        found = error.errors()
        if any(one["type"] == "json_invalid" for one in found):
            return answer(400, Failure(message=_NOT_OURS[400]))
        more = f" And {len(found) - _TOLD} more." if len(found) > _TOLD else ""
        return answer(422, Failure(message=" ".join(map(_sentence, found[:_TOLD])) + more))

    @app.exception_handler(JoemError)
    def wrong(_: Request, error: JoemError) -> JSONResponse:
        if isinstance(error, UnknownWord):
            return answer(422, Failure(message=str(error), word=error.word, near=error.near))
        return answer(422, Failure(message=str(error)))


def _sentence(error: Mapping[str, Any]) -> str:
    # What was sent is not repeated, and its keys only in part: they can be long.
    location: Sequence[object] = error["loc"]
    return f"{'.'.join(str(part)[:40] for part in location)}: {error['msg']}."
