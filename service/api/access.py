"""Who may do what: the token of a request, and the role that a route asks for."""

from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.exceptions import HTTPException

from service.api.origins import port_of
from service.api.tokens import ANONYMOUS, Client, Tokens
from service.session.session import Session

Guard = Callable[[Request], Awaitable[Client]]
INVALID = "a valid bearer token is needed: wrong, expired or none was given"
NO_TOKEN = (
    "this needs the token of the service: open the address that `twin serve` printed, or send the token "
    "in STORE/service/token as `Authorization: Bearer TOKEN`"
)


def client_of(request: Request) -> Client | None:
    """Returns the client of a request, by its bearer token or by the cookie of the console; None: it may do
    nothing."""
    tokens: Tokens = request.app.state.tokens
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return tokens.client(token.strip() or None)
    cookie = request.cookies.get(cookie_name(request))
    # A cookie may be of a service that was here before: it is not held against the browser.
    return (tokens.client(cookie) if cookie else None) or tokens.client(None)


def cookie_name(request: Request) -> str:
    """Returns the name of the console's cookie: a browser sends the cookies of a host to all its ports."""
    return f"twin-{port_of(request.headers.get('host', ''))}"


def needs(role: str) -> Guard:
    """Returns the dependency of a route that only clients with `role` may call; it gives the client."""

    async def guard(request: Request) -> Client:
        client = client_of(request)
        if client is not None and may(client, role, request.method):
            return client
        if client is None or client is ANONYMOUS:
            ask = {"WWW-Authenticate": 'Bearer realm="twin"'}
            raise HTTPException(401, INVALID if client is None else NO_TOKEN, ask)
        raise HTTPException(403, f"the token {client.name} lacks the role {role}")

    return guard


def may(client: Client, role: str, method: str) -> bool:
    """Returns True if a client may call a route of that role; one without a token may look at everything."""
    return role in client.roles or (client is ANONYMOUS and method == "GET")


def session_of(request: Request) -> Session:
    """Returns the session that the application serves."""
    session: Session = request.app.state.session
    return session
