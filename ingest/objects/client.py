"""The client of a bucket, by `obstore` (extra `s3`), and what its errors mean to a user.

Access comes from the environment, as for other S3 clients: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, AWS_ENDPOINT_URL (a plain http one is allowed). The role of a cloud machine is asked for only
where AWS_EC2_METADATA_DISABLED is `false`: elsewhere that question ends after a minute without an answer.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from ingest.core import extras
from ingest.core.errors import StorageError, UsageError
from ingest.core.terminal import clipped, in_line

SCHEME = "s3://"
TIMEOUT_S, RETRIES, RETRYING_S = 30, 4, 60
_GIVEN_OTHERWISE = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # fmt: skip
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
_REFUSED = ("status code: 401 ", "status code: 403 ")


def parts_of(url: str) -> tuple[str, str]:
    """Returns bucket and prefix of `s3://BUCKET/PREFIX`; the prefix may be empty.

    Raises:
        UsageError: no bucket is named.
    """
    parts = urlsplit(url)
    if url.startswith(SCHEME) and {"@", ":"} & {*parts.netloc}:
        raise UsageError(
            f"{SCHEME}***: the address holds keys, which others may read; write s3://BUCKET/PREFIX, and "
            "the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not url.startswith(SCHEME) or not parts.netloc:
        raise UsageError(f"{clipped(url)}: write s3://BUCKET/PREFIX")
    return parts.netloc, parts.path.strip("/")


def client_of(url: str, what: str = "a store in a bucket") -> Any:
    """Returns the client of `s3://BUCKET/PREFIX`, an `obstore` store; no request is made.

    Raises:
        UsageError: no bucket is named, the extra is missing, or there are no credentials.
    """
    bucket, prefix = parts_of(url)
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise extras.missing("s3", what) from error
    check_credentials(url)
    check_endpoints()
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    settings: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    if not os.environ.get("AWS_REGION"):
        settings["region"] = "us-east-1"
    make: Callable[..., Any] = S3Store
    return make(
        bucket,
        prefix=prefix or None,
        client_options={"allow_http": bool(endpoint), "timeout": timedelta(seconds=TIMEOUT_S)},
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRYING_S)},
        **settings,
    )


def check_credentials(url: str) -> None:
    """Checks that the environment says how to sign requests; makes no request.

    Raises:
        UsageError: it does not, or gives one of the two keys.
    """
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    missing = [name for name in names if not os.environ.get(name)]
    role = os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "false"
    unsigned = os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true")
    if not missing or (
        len(missing) == len(names) and (role or unsigned or any(map(os.environ.get, _GIVEN_OTHERWISE)))
    ):
        return
    raise UsageError(
        f"{clipped(url)}: no credentials: {' and '.join(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} not set. "
        "Set both; AWS_EC2_METADATA_DISABLED=false asks for the role of a cloud machine"
    )


def check_endpoints() -> None:
    """Checks that the address of the server, where the environment has one, is one, and holds no keys.

    Raises:
        UsageError: it is not, or does.
    """
    for name in _ENDPOINTS:
        try:
            parts = urlsplit(os.environ.get(name) or "https://none")
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # of a port, or of brackets
            sound = False
        if not sound:
            raise UsageError(f"{name}: is no address of a server; write http://HOST:PORT or https://HOST")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise UsageError(
                f"{name}: holds more than an address, perhaps keys; write http://HOST:PORT or https://HOST, "
                "and the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )


@contextmanager
def asked(title: str, what: str) -> Iterator[None]:
    """Turns what the client raises in the body into errors of ours; `title` cannot be `what` (read, written).

    Raises:
        UsageError: access is refused, or the clocks differ.
        StorageError: anything else that the client says.
    """
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (BaseError, OSError) as error:
        said = first_line(error)
        if "RequestTimeTooSkewed" in str(error):
            raise UsageError(
                f"{title} cannot be {what}: the clock of this machine differs too much from the server's, "
                "which refuses requests signed at another time; set the clock (NTP)"
            ) from error
        if "<Code>NoSuchBucket</Code>" in str(error):
            raise StorageError(
                f"{title} cannot be {what}: the server has no such bucket; make it, or name another"
            ) from error
        refused = any(status in str(error) for status in _REFUSED)  # a listing has no error of its own for it
        if refused or isinstance(error, PermissionDeniedError | UnauthenticatedError):
            raise UsageError(
                f"{title} cannot be {what}: access is refused. Set AWS_ACCESS_KEY_ID and "
                f"AWS_SECRET_ACCESS_KEY to keys with the right to it ({said})"
            ) from error
        raise StorageError(
            f"{title} cannot be {what}: {said}; is AWS_ENDPOINT_URL right, and is the bucket there?"
        ) from error


def first_line(error: BaseException) -> str:
    """Returns the first line of what an error says, no longer than messages can bear."""
    return clipped(in_line(str(error).partition("\n")[0]), 200)
