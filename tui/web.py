"""`whale web`: the same app in a browser, by textual-serve. It gives whoever reaches it the power to steer.

So it listens on loopback, and elsewhere only with a token: the first request brings it in the URL, a cookie
keeps it, and every page and the websocket ask for it.
"""

import hmac
import os
import secrets
import shlex
import sys
from typing import Any

from whale.address import is_loopback
from whale.errors import UsageError

COOKIE = "whale-token"
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self' ws: wss:"
"""Nothing comes from elsewhere: textual-serve's page asks a font service first, and without a network it waits for
that for minutes before it opens the terminal."""


def check_address(host: str, token: str | None) -> None:
    """Refuse what would let strangers steer.

    Raises:
        UsageError: the address is not loopback and there is no token, or too short a one.
    """
    if is_loopback(host):
        return
    if not token:
        raise UsageError(
            f"--host {host}: others could steer your runs; set WHALE_WEB_TOKEN (for instance to "
            f"{secrets.token_urlsafe(16)}), or stay on 127.0.0.1 and forward the port by ssh"
        )
    if len(token) < 16:
        raise UsageError("WHALE_WEB_TOKEN: give at least 16 characters")


def serve(arguments: list[str], host: str, port: int, token: str | None) -> None:
    """Serve until interrupted; each page starts a process of its own, which ends with it.

    Raises:
        UsageError: the address is refused, the port is taken, or textual-serve is not installed.
    """
    check_address(host, token)
    try:
        from textual_serve.server import Server
    except ImportError:
        raise UsageError("whale web needs textual-serve: pip install 'whale-evolve[web]'") from None
    command = shlex.join([sys.executable, "-m", "whale", "tui", *arguments])
    server = _guarded(Server, token)(
        command, host=host, port=port, title="whale", public_url=os.environ.get("WHALE_WEB_URL")
    )
    try:
        server.serve()
    except OSError as error:
        raise UsageError(f"{host}:{port}: {error.strerror or error}") from error


def _guarded(server: Any, token: str | None) -> Any:
    """textual-serve's server, asking for the token and for the page's own origin."""
    from aiohttp import web

    @web.middleware
    async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.host:
            # A page from elsewhere must not open the websocket of a loopback server.
            raise web.HTTPForbidden(text="another site's page may not use this\n")
        given = request.query.get("token") or request.cookies.get(COOKIE) or ""
        if token and not hmac.compare_digest(given.encode(), token.encode()):
            raise web.HTTPForbidden(text="add ?token=... to the address\n")
        response: web.StreamResponse = await handler(request)
        if not response.prepared:
            response.headers["Content-Security-Policy"] = POLICY
        if token and request.query.get("token") and not response.prepared:
            response.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
        return response

    class Guarded(server):  # type: ignore[misc]
        async def _make_app(self) -> web.Application:
            app: web.Application = await super()._make_app()
            app.middlewares.insert(0, guard)
            return app

    return Guarded
