"""Addresses, credentials, and what the client's errors mean."""

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from ingest.core.errors import StorageError, UsageError
from ingest.objects.client import asked, check_credentials, client_of, parts_of

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    more = (
        "AWS_EC2_METADATA_DISABLED",
        "AWS_SKIP_SIGNATURE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_ENDPOINT_URL",
    )
    for name in (*KEYS, *more):
        monkeypatch.delenv(name, raising=False)


def test_parts_of_addresses() -> None:
    assert parts_of("s3://bucket/a/b/") == ("bucket", "a/b")
    assert parts_of("s3://bucket") == ("bucket", "")
    for wrong in ("s3:///prefix", "bucket/prefix", "gs://bucket/x"):
        with pytest.raises(UsageError, match="write s3://BUCKET/PREFIX"):
            parts_of(wrong)


def test_missing_credentials_are_named_before_any_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"):
        client_of("s3://bucket/x")
    monkeypatch.setenv(KEYS[0], "key")
    with pytest.raises(UsageError, match="no credentials: AWS_SECRET_ACCESS_KEY is not set"):
        check_credentials("s3://bucket/x")
    monkeypatch.setenv(KEYS[1], "secret")
    check_credentials("s3://bucket/x")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_EC2_METADATA_DISABLED", "false"),
        ("AWS_SKIP_SIGNATURE", "true"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"),
    ],
)
def test_credentials_of_other_kinds(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    check_credentials("s3://bucket/x")


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (
            GenericError("status code: 403 Forbidden: <Code>RequestTimeTooSkewed</Code>"),
            UsageError,
            "set the clock",
        ),
        (
            GenericError("status code: 403 Forbidden: <Code>AccessDenied</Code>"),
            UsageError,
            "access is refused",
        ),
        (PermissionDeniedError("no"), UsageError, "access is refused"),
        (GenericError("404 <Code>NoSuchBucket</Code>"), StorageError, "no such bucket"),
        (GenericError("connection refused"), StorageError, "is AWS_ENDPOINT_URL right"),
    ],
)
def test_errors_say_what_to_do(raised: Exception, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=f"s3://b cannot be read: .*{words}"), asked("s3://b", "read"):
        raise raised
