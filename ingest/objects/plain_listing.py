"""Listings of a bucket without `obstore`, for keys that it does not take: `runs//x`, `runs/../x`, control
characters. There it refuses the whole listing; here each key is a text. Signed with the keys of the
environment (AWS Signature Version 4).
"""

import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, unquote_plus, urlsplit
from xml.etree import ElementTree as ET

from ingest.core.errors import StorageError

TIMEOUT_S = 30
MAX_PAGE_BYTES = 1 << 25
"""Bytes of a page of 1,000 objects; a page of the longest keys has 4 MiB."""
MAX_EMPTY_PAGES = 100


def rows(title: str, client: Any, under: str | None) -> Iterator[dict[str, Any]]:
    """Yields the objects below a folder as `obstore.list` describes them; keys are relative to the store.

    Raises:
        StorageError: the server cannot be asked so, or its answer is no listing.
    """
    root = f"{client.prefix}/" if client.prefix else ""
    query = {"encoding-type": "url", "list-type": "2", "prefix": root + (f"{under}/" if under else "")}
    token, empty = "", 0
    while True:
        page = _page(title, client, {**query, "continuation-token": token} if token else query)
        found = [one for one in page if _tag(one) == "Contents"]
        for one in found:
            field = {_tag(part): part.text or "" for part in one}
            yield {
                "path": unquote_plus(field["Key"]).removeprefix(root),
                "size": int(field["Size"]),
                "e_tag": field.get("ETag"),
                "last_modified": datetime.fromisoformat(field["LastModified"]),
            }
        before, token = token, _text(page, "NextContinuationToken")
        empty = 0 if found else empty + 1
        if not token:
            return
        if token == before or empty == MAX_EMPTY_PAGES:
            raise StorageError(f"{title} cannot be listed: the server goes on for ever without an object")


def _page(title: str, client: Any, query: Mapping[str, str]) -> ET.Element:
    """Returns one page of a listing."""
    config = client.config
    region, bucket = config.get("region", "us-east-1"), config["bucket"]
    endpoint = urlsplit(config.get("endpoint") or f"https://s3.{region}.amazonaws.com")
    path = f"{endpoint.path.rstrip('/')}/{quote(bucket)}"
    text = "&".join(
        f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(query.items())
    )
    make = HTTPSConnection if endpoint.scheme == "https" else HTTPConnection
    try:
        connection = make(str(endpoint.hostname), endpoint.port, timeout=TIMEOUT_S)
        with_port = endpoint.netloc.rpartition("@")[2]
        connection.request("GET", f"{path}?{text}", headers=_signed(with_port, path, text, region))
        answer = connection.getresponse()
        body = answer.read(MAX_PAGE_BYTES + 1)
        connection.close()
    except (OSError, HTTPException, ValueError) as error:
        raise StorageError(
            f"{title} cannot be listed: {type(error).__name__}; is the server there?"
        ) from error
    if answer.status != 200 or len(body) > MAX_PAGE_BYTES or b"<!DOCTYPE" in body:
        raise StorageError(f"{title} cannot be listed: the server answers with status {answer.status}")
    try:
        page = ET.fromstring(body)
        for one in page:
            if _tag(one) == "Contents":
                int(_text(one, "Size")), datetime.fromisoformat(_text(one, "LastModified"))
    except (ET.ParseError, ValueError) as error:
        raise StorageError(f"{title} cannot be listed: the answer of the server is no listing") from error
    return page


def _signed(host: str, path: str, query: str, region: str) -> dict[str, str]:
    """Returns the headers of a signed GET without a body; without keys in the environment none is signed."""
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not (key and secret):
        return {"Host": host}
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": host, "x-amz-content-sha256": hashlib.sha256(b"").hexdigest(), "x-amz-date": now}
    if session := os.environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = session
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"GET\n{path}\n{query}\n{lines}\n{names}\n{headers['x-amz-content-sha256']}"
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signing = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        signing = hmac.digest(signing, part.encode(), "sha256")
    signature = hmac.digest(signing, text.encode(), "sha256").hex()
    value = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "Authorization": value}


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: ET.Element, name: str) -> str:
    return next((part.text or "" for part in element if _tag(part) == name), "")
