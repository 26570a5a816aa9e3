"""Which requests a browser may send: those of our own page, under a name that is ours.

Any page that somebody opens can make a browser send requests to this machine. So a request is answered only
if its `Host` is a loopback name or one of `--allow-host` (a page that maps its own name to 127.0.0.1, DNS
rebinding, has another), if its `Origin` is our own or missing, if the browser does not say that another site
sends it (`Sec-Fetch-Site`), and, where it can change anything, if its body is declared as JSON, which no form
can send.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ingest.core.errors import UsageError
from ingest.core.terminal import clipped, shown
from service.api import errors
from service.local_token import is_loopback

LOOKING = ("GET", "HEAD")
JSON = ("application/json",)
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
OBSERVATIONS = "/v1/observations"
"""The route that also takes lines of JSON."""
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_-][a-z0-9._-]{0,252})(?::([0-9]{1,5}))?")
Refusal = tuple[int, str, str]
"""Status, kind and message."""


class CheckOrigin:
    """Middleware: refuses what another page, or a page under another name, sends through a browser.

    `hosts`: names beside those of the loopback address that clients may use.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self._app, self._hosts = app, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is not None:
            await errors.reply(*refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (is_loopback(name) or name in self._hosts or _is_own(name, scope)):
            said = shown(clipped(hosts[0], 100)) if hosts else "none"
            advice = "use the address that `twin serve` printed, or start it with --allow-host NAME"
            return 403, "ForeignHost", f"Host {said} is no name of this service; {advice}"
        for origin in headers.getlist("origin"):
            if not _is_same(origin, hosts[0], scope["scheme"]):
                who = shown(clipped(origin, 100))
                return 403, "ForeignOrigin", f"a page of another origin, {who}, may not ask this service"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _opens_page(
            scope, headers
        ):
            return 403, "ForeignOrigin", "a page of another site may not ask this service"
        return None if scope["method"] in LOOKING else _wrong_type(scope["path"], headers)


def allowed_hosts(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of `--allow-host` as they are compared.

    Raises:
        UsageError: one is no name of a host.
    """
    found = []
    for name in names:
        parsed = host_name(f"[{name}]" if name.count(":") > 1 and "[" not in name else name)
        if parsed is None or port_of(name.lower()) != "":
            raise UsageError(
                f"--allow-host {shown(clipped(name, 100))}: a host name or an address without scheme and port"
            )
        found.append(parsed)
    return tuple(found)


def named_by(address: str) -> tuple[str, ...]:
    """Returns the name that clients may use for a `--host`; none if it stands for all addresses."""
    name = host_name(f"[{address}]" if ":" in address else address)
    return () if name in (None, "0.0.0.0", "::") else (name,)


def host_name(host: str) -> str | None:
    """Returns the name in a `Host` header, lower case, without port, brackets and final dot; None: it is no
    such header."""
    match = _HOST.fullmatch(host.lower())
    return None if match is None else match[1].strip("[]").removesuffix(".")


def port_of(host: str) -> str:
    """Returns the port in a `Host` header, "" where it names none."""
    match = _HOST.fullmatch(host.lower())
    return (match[2] or "") if match else ""


def _is_own(name: str, scope: Scope) -> bool:
    """True for the very address that the client reached, as a number: no name can be mapped to it."""
    try:
        return _plain(name) == _plain((scope.get("server") or ("",))[0])
    except ValueError:
        return False


def _plain(address: str) -> object:
    found = ip_address(address)
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def _is_same(origin: str, host: str, scheme: str) -> bool:
    """True if an `Origin` is that of our own page. Behind a proxy that ends TLS the page has https, we have
    http; never the other way round."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    schemes = ("https",) if scheme == "https" else ("http", "https")
    return parts.scheme in schemes and origin.lower() == f"{parts.scheme}://{host.lower()}"


def _opens_page(scope: Scope, headers: Headers) -> bool:
    """True for a link somewhere else that opens the console."""
    opens = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return opens and scope["method"] == "GET" and scope["path"] == "/"


def _wrong_type(path: str, headers: Headers) -> Refusal | None:
    """Returns why a body is not taken; one that is empty and has no type is."""
    types = JSON + NDJSON if path == OBSERVATIONS else JSON
    given = [text.partition(";")[0].strip().lower() for text in headers.getlist("content-type")]
    empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    if all(one in types for one in given) and (given or empty):
        return None
    return 415, "MediaType", f"a body needs the header Content-Type: {' or '.join(types[:2])}"
