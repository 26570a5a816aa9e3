"""Routes of the page and its files, open to everybody: they hold nothing of the run.

The content policy allows scripts, styles and requests of this address alone, none inline; nobody may frame
the page.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ingest.core.errors import NotFoundError
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
    """Sends the page."""
    return _sent(request, assets()[PAGE])


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
