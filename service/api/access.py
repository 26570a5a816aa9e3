"""Who may do what: the bearer token of a request, and the role that a route asks for."""

from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.exceptions import HTTPException

from service.api.tokens import Client, Tokens
from service.session.session import Session

Guard = Callable[[Request], Awaitable[Client]]


def needs(role: str) -> Guard:
    """Returns the dependency of a route that only clients with `role` may call; it gives the client."""

    async def guard(request: Request) -> Client:
        tokens: Tokens = request.app.state.tokens
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        client = tokens.client(token.strip() if scheme.lower() == "bearer" else None)
        if client is None:
            ask = {"WWW-Authenticate": 'Bearer realm="twin"'}
            raise HTTPException(401, "a valid bearer token is needed: wrong, expired or none was given", ask)
        if role not in client.roles:
            raise HTTPException(403, f"the token {client.name} lacks the role {role}")
        return client

    return guard


def session_of(request: Request) -> Session:
    """Returns the session that the application serves."""
    session: Session = request.app.state.session
    return session
