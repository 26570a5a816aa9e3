"""A small stand-in for a Kubernetes API server on the loopback address, for tests of the operator.

It knows discovery, lists with a label selector, watches, server-side apply, merge and JSON patches, the
status as a part of its own, generations and deletion. It knows no schemas, no access rights, no controllers:
pods never start, and what a deleted owner leaves behind stays. It shows that requests come and what they say.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonpatch

Json = dict[str, Any]
RESOURCES = {
    "/api/v1": [("configmaps", "ConfigMap", True), ("nodes", "Node", False),
                ("namespaces", "Namespace", False), ("events", "Event", True)],
    "/apis/twin.local/v1alpha1": [("trainingplans", "TrainingPlan", True)],
    "/apis/jobset.x-k8s.io/v1alpha2": [("jobsets", "JobSet", True)],
    "/apis/apiextensions.k8s.io/v1": [("customresourcedefinitions", "CustomResourceDefinition", False)],
}  # fmt: skip
VERBS = ["get", "list", "watch", "create", "patch", "delete"]
Key = tuple[str, str, str]


class KubeServer(ThreadingHTTPServer):
    """The server, its objects by plural, namespace and name, and every event that happened."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.objects: dict[Key, Json] = {}
        self.events: list[tuple[str, str, Json]] = []
        self.asked: list[tuple[str, str]] = []
        self.refusing = 0
        self.changed = threading.Condition()
        self.ended = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def put(self, plural: str, body: Json, namespace: str = "") -> None:
        """Creates an object, or replaces all of it but its metadata."""
        with self.changed:
            key = plural, namespace, body["metadata"]["name"]
            old = self.objects.get(key)
            head = {} if old is None else old["metadata"]
            self._store(key, {**(old or {}), **body, "metadata": {**body["metadata"], **head}})

    def remove(self, plural: str, name: str, namespace: str = "") -> bool:
        """Deletes an object; False: there is none."""
        with self.changed:
            gone = self.objects.pop((plural, namespace, name), None)
            if gone is not None:
                self._happened("DELETED", plural, gone)
            return gone is not None

    def apply(self, key: Key, body: Any, status: bool, *, create: bool) -> Json | None:
        """Merges a patch into an object, its status alone or all but its status; None: there is none."""
        with self.changed:
            old = self.objects.get(key)
            if old is None and (status or not create):
                return None
            if isinstance(body, list):
                self._store(key, jsonpatch.apply_patch(old, body))
                return self.objects[key]
            part = {name: one for name, one in body.items() if (name == "status") == status}
            if status and create:  # what a manager no longer applies goes away
                old = {**(old or {}), "status": {}}
            self._store(key, merged(old or {}, part))
            return self.objects[key]

    def _store(self, key: Key, body: Json) -> None:
        old, body = self.objects.get(key), deepcopy(body)
        head = body["metadata"]
        head.setdefault("uid", f"uid-{len(self.events)}")
        head |= {"resourceVersion": str(len(self.events) + 1)} | ({"namespace": key[1]} if key[1] else {})
        if old is None or old.get("spec") != body.get("spec"):
            head["generation"] = head.get("generation", 0) + 1
        self.objects[key] = body
        self._happened("ADDED" if old is None else "MODIFIED", key[0], body)

    def _happened(self, kind: str, plural: str, body: Json) -> None:
        self.events.append((kind, plural, deepcopy(body)))
        self.changed.notify_all()

    def names(self, plural: str) -> list[str]:
        with self.changed:
            return sorted(name for one, _, name in self.objects if one == plural)


def merged(old: Json, patch: Json) -> Json:
    """The object after a JSON merge patch (RFC 7396)."""
    found = dict(old)
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, dict):
            found[name] = merged(found[name] if isinstance(found.get(name), dict) else {}, value)
        else:
            found[name] = value
    return found


class Answer(BaseHTTPRequestHandler):
    """One request."""

    server: KubeServer

    def log_message(self, *_: Any) -> None:
        return

    def say(self, value: Json, code: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def place(self) -> tuple[str, str, str | None, bool] | None:
        """Plural, namespace, name and whether it is the status; None: no path of a resource."""
        path = urlsplit(self.path).path
        for group, resources in RESOURCES.items():
            if not path.startswith(f"{group}/"):
                continue
            words = path.removeprefix(f"{group}/").split("/")
            namespace = words[1] if words[0] == "namespaces" and len(words) > 2 else ""
            plural, *rest = words[2:] if namespace else words
            if plural in {one for one, _, _ in resources}:
                return plural, namespace, rest[0] if rest else None, rest[1:] == ["status"]
        return None

    def handle_one(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        self.server.asked.append((self.command, self.path))
        if self.server.refusing:
            self.say({"kind": "Status", "code": self.server.refusing, "message": "no"}, self.server.refusing)
        elif (found := self.place()) is None:
            self.discovery(urlsplit(self.path).path.rstrip("/"))
        else:
            self.resource(*found, body)

    do_GET = do_PATCH = do_DELETE = do_POST = handle_one  # noqa: N815

    def discovery(self, path: str) -> None:
        groups = [tuple(one.split("/")[2:]) for one in RESOURCES if one.startswith("/apis/")]
        if path == "/api":
            self.say({"versions": ["v1"]})
        elif path == "/apis":
            versions = [{"version": v, "groupVersion": f"{g}/{v}"} for g, v in groups]
            self.say({"groups": [
                {"name": g, "versions": [one], "preferredVersion": one}
                for (g, _), one in zip(groups, versions, strict=True)
            ]})  # fmt: skip
        elif path in RESOURCES:
            self.say({"groupVersion": path.split("/", 2)[2], "resources": [
                {"name": plural, "kind": kind, "namespaced": inside, "singularName": "", "verbs": VERBS}
                for plural, kind, inside in RESOURCES[path]
            ]})  # fmt: skip
        else:
            self.say({"code": 404}, 404)

    def resource(self, plural: str, namespace: str, name: str | None, status: bool, body: Json) -> None:
        words = parse_qs(urlsplit(self.path).query)
        if name is None and self.command == "POST":
            self.say(body, 201)
        elif name is None and words.get("watch"):
            self.watch(plural, int(words.get("resourceVersion", ["0"])[0] or 0))
        elif name is None:
            self.list(plural, namespace, words.get("labelSelector", [""])[0])
        else:
            self.one((plural, namespace, name), status, body)

    def list(self, plural: str, namespace: str, selector: str) -> None:
        label, _, wanted = selector.partition("=")
        with self.server.changed:
            items = [
                one for (kind, inside, _), one in sorted(self.server.objects.items())
                if kind == plural and namespace in ("", inside)
                and (not label or one["metadata"].get("labels", {}).get(label) == wanted)
            ]  # fmt: skip
            version = str(len(self.server.events))
            self.say({"metadata": {"resourceVersion": version}, "items": items})

    def one(self, key: Key, status: bool, body: Json) -> None:
        if self.command == "PATCH":
            create = "apply-patch" in self.headers["Content-Type"]
            found = self.server.apply(key, body, status, create=create)
        elif self.command == "DELETE":
            found = {"status": "Success"} if self.server.remove(key[0], key[2], key[1]) else None
        else:
            found = self.server.objects.get(key)
        self.say({"code": 404}, 404) if found is None else self.say(found)

    def watch(self, plural: str, after: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        while not self.server.ended:
            with self.server.changed:
                if len(self.server.events) == after:
                    self.server.changed.wait(0.2)
                news, after = self.server.events[after:], len(self.server.events)
            try:
                for kind, one, body in news:
                    if one == plural:
                        self.wfile.write(json.dumps({"type": kind, "object": body}).encode() + b"\n")
                self.wfile.flush()
            except OSError:  # the watcher has gone
                return


@contextmanager
def kube_server() -> Iterator[KubeServer]:
    """A server that runs."""
    server = KubeServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server
    server.ended = True
    server.shutdown()
    thread.join()
    server.server_close()
