"""The routes of the metrics port, as an application of WSGI.

The paths and the names of JSON fields are the same as in BookKeeper's HTTP server. A request for an
unknown path gets 404. A request whose path does not support its method gets 405. Requests that
change the bookie get 403 unless the setting `admin_changes` allows them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import make_wsgi_app

from bookie_server.service.admin.view import BookieView, NotServingError
from bookie_server.service.logging import get_logger

BODY_BYTES_MAX: Final = 4_096
PAGE: Final = Path(__file__).with_name("status.html")
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
HTML: Final = "text/html; charset=utf-8"
POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; frame-ancestors 'none'"
)
"""Content security policy: the page loads nothing from other servers, and no page may embed it."""
HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", POLICY),
)

_logger = get_logger("admin")


class RefusedError(Exception):
    """Raised for a request that is answered with an error."""

    def __init__(self, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of an answer with the status 200."""

    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that its handler needs: the body, and the address of the peer."""

    body: bytes
    peer: str


Handler = Callable[[BookieView, Request], Answer]


def _json(value: object) -> Answer:
    return Answer(json.dumps(value, indent=2).encode() + b"\n", JSON)


def _page(_view: BookieView, _request: Request) -> Answer:
    return Answer(_page_bytes(), HTML)


@cache
def _page_bytes() -> bytes:
    return PAGE.read_bytes()


def _heartbeat(_view: BookieView, _request: Request) -> Answer:
    return Answer(b"OK\n", TEXT)


def _is_ready(view: BookieView, _request: Request) -> Answer:
    if not view.is_running:
        raise NotServingError("Bookie is not fully started yet")
    return Answer(b"OK", TEXT)


def _state(view: BookieView, _request: Request) -> Answer:
    return _json(view.state())


def _read_only(view: BookieView, _request: Request) -> Answer:
    return _json({"readOnly": view.is_read_only})


def _set_read_only(view: BookieView, request: Request) -> Answer:
    wanted = _flags(request.body).get("readOnly")
    if wanted is None:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, 'the body must be {"readOnly": true} or {"readOnly": false}'
        )
    view.set_read_only(is_read_only=wanted)
    _logger.info("read_only_requested", peer=request.peer, read_only=wanted)
    return _read_only(view, request)


def _flags(body: bytes) -> dict[str, bool]:
    """Return the fields of a JSON object, whose values must all be true or false."""
    try:
        flags = json.loads(body)
    except (ValueError, RecursionError):  # RecursionError: brackets that are nested too deeply
        flags = None
    if not isinstance(flags, dict) or not all(isinstance(each, bool) for each in flags.values()):
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, "the body must be a JSON object whose values are true or false"
        )
    return flags


def _collects(view: BookieView, _request: Request) -> Answer:
    # As in BookKeeper, the value is a text, not a boolean of JSON.
    return _json({"is_in_force_gc": str(view.serving.collector.is_forced).lower()})


def _collect(view: BookieView, request: Request) -> Answer:
    flags = _flags(request.body) if request.body.strip() else {}
    major, minor = flags.get("forceMajor", True), flags.get("forceMinor", True)
    view.collect_garbage(is_major=major, is_minor=minor)
    _logger.info("collection_requested", peer=request.peer, major=major, minor=minor)
    return _json(f"Triggered GC on BookieServer: {view.bookie_id}")


def _collections(view: BookieView, _request: Request) -> Answer:
    return _json([view.garbage_collection()])


def _scrub_details(view: BookieView, _request: Request) -> Answer:
    return _json(view.scrub_details())


def _scrub(view: BookieView, request: Request) -> Answer:
    view.scrub()
    _logger.info("scrub_requested", peer=request.peer)
    return _scrub_details(view, request)


def _repair(view: BookieView, _request: Request) -> Answer:
    return _json({"doubt": view.doubt(), **view.repair()})


def _configuration(view: BookieView, _request: Request) -> Answer:
    return _json(view.configuration())


def _last_log_mark(view: BookieView, _request: Request) -> Answer:
    return _json(view.journal_mark())


def _info(view: BookieView, _request: Request) -> Answer:
    return _json(view.disk_info())


def _status(view: BookieView, _request: Request) -> Answer:
    return _json(view.status())


METRICS: Final = "/metrics"
ROUTES: Final[dict[str, dict[str, Handler]]] = {
    "/": {"GET": _page},
    "/heartbeat": {"GET": _heartbeat},
    "/api/v1/bookie/is_ready": {"GET": _is_ready},
    "/api/v1/bookie/state": {"GET": _state},
    "/api/v1/bookie/state/readonly": {"GET": _read_only, "PUT": _set_read_only},
    "/api/v1/bookie/gc": {"GET": _collects, "PUT": _collect},
    "/api/v1/bookie/gc_details": {"GET": _collections},
    "/api/v1/bookie/scrub": {"GET": _scrub_details, "PUT": _scrub},
    "/api/v1/bookie/info": {"GET": _info},
    "/api/v1/bookie/last_log_mark": {"GET": _last_log_mark},
    "/api/v1/bookie/repair": {"GET": _repair},
    "/api/v1/bookie/status": {"GET": _status},
    "/api/v1/config/server_config": {"GET": _configuration},
}
"""The handlers of each path, by method. A path that accepts GET also accepts HEAD."""


class AdminApplication:
    """Answers the requests of all threads of the server."""

    def __init__(self, view: BookieView) -> None:
        self._view = view

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        headers: list[tuple[str, str]] = []
        try:
            handler = self._handler(environ)
            if handler is None:
                metrics: WSGIApplication = make_wsgi_app(self._view.serving.registry)
                return metrics(environ, start_response)
            answer = handler(self._view, _request(environ))
            status = HTTPStatus.OK
        except RefusedError as error:
            status, answer = error.status, Answer(f"{error.text}\n".encode(), TEXT)
            headers += error.headers
        except NotServingError as error:
            status, answer = HTTPStatus.SERVICE_UNAVAILABLE, Answer(f"{error}\n".encode(), TEXT)
        headers += [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *HEADERS,
        ]
        start_response(f"{status.value} {status.phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]

    def _handler(self, environ: WSGIEnvironment) -> Handler | None:
        """Return the handler of a request, or None for the metrics."""
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        is_metrics = path == METRICS
        methods: dict[str, Any] = {"GET": None} if is_metrics else ROUTES.get(path, {})
        if not methods:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"no such path; {METRICS} has the metrics")
        wanted = "GET" if method == "HEAD" and not is_metrics else method
        if wanted not in methods:
            allowed = ", ".join([*methods, *(() if is_metrics else ("HEAD",))])
            raise RefusedError(
                HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed} for {path}", ("Allow", allowed)
            )
        if wanted != "GET" and not self._view.settings.admin_changes:
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                "this port changes nothing; start the bookie with --admin-changes to allow it",
            )
        handler: Handler | None = methods[wanted]
        return handler


def _request(environ: WSGIEnvironment) -> Request:
    """Return a request with its body."""
    length = environ.get("CONTENT_LENGTH") or "0"
    if not (length.isascii() and length.isdecimal()) or environ.get("HTTP_TRANSFER_ENCODING"):
        raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "the request needs a Content-Length")
    size = int(length.lstrip("0")[:9] or 0)
    if size > BODY_BYTES_MAX:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have {BODY_BYTES_MAX} bytes"
        )
    body = environ["wsgi.input"].read(size) if size else b""
    if len(body) < size:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the body is shorter than its Content-Length")
    return Request(body, environ.get("REMOTE_ADDR", ""))
