"""Routes of the page and its files, open to everybody: they hold nothing of the run.

The content policy allows scripts, styles and requests of this address alone, none inline; nobody may frame
the page.
"""

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from ingest.core.errors import NotFoundError
from service.api.access import cookie_name
from service.api.tokens import Tokens
from service.console.assets import PAGE, Asset, assets

router = APIRouter(include_in_schema=False)
POLICY = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
        "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)  # fmt: skip
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # kept, and asked about: a service that was upgraded has other files
}


@router.get("/")
async def console(request: Request) -> Response:
    """Sends the page. A token in its address (`?token=...`) becomes a cookie and leaves the address; an empty
    one ends the cookie."""
    token = request.query_params.get("token")
    return _sent(request, assets()[PAGE]) if token is None else _signed_in(request, token)


def _signed_in(request: Request, token: str) -> Response:
    """Returns the way to the page, with the cookie of a token that is valid."""
    answer = RedirectResponse("./", 303, HEADERS)
    tokens: Tokens = request.app.state.tokens
    if token and tokens.client(token) is not None:
        secure = request.url.scheme == "https"
        answer.set_cookie(cookie_name(request), token, secure=secure, httponly=True, samesite="strict")
    elif not token:
        answer.delete_cookie(cookie_name(request), httponly=True, samesite="strict")
    return answer


@router.get("/console/{name:path}")
async def file(request: Request, name: str) -> Response:
    """Sends a file of the page."""
    asset = assets().get(name)
    if asset is None:
        raise NotFoundError("the console has no such file")
    return _sent(request, asset)


def _sent(request: Request, asset: Asset) -> Response:
    """Returns the file, or 304 where the browser has it."""
    headers = {**HEADERS, "ETag": asset.etag}
    known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    if asset.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)
