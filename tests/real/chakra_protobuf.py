"""Execution traces of `twin export --to chakra`, decoded by the protobuf library with Chakra's own schema.

    python -m tests.real.chakra_protobuf ET_DEF.PROTO FOLDER

ET_DEF.PROTO is `schema/protobuf/et_def.proto` of MLCommons Chakra, FOLDER an export. Needs `grpcio-tools`.
Prints the nodes of each type, and fails where a message has fields that the schema does not know, a
dependency is no node, or senders and receivers do not match.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from google.protobuf.internal.decoder import _DecodeVarint32
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_tools import protoc


def compiled(schema: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        words = ["protoc", f"-I{schema.parent}", f"--python_out={folder}", str(schema)]
        if protoc.main(words):
            raise SystemExit(f"{schema}: protoc does not take it")
        sys.path.insert(0, folder)
        return __import__(f"{schema.stem}_pb2")


def messages(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size, at = _DecodeVarint32(data, at)
        found.append(data[at : at + size])
        at += size
    return found


def known(message: Any) -> Any:
    if len(UnknownFieldSet(message)):
        raise SystemExit(f"fields that the schema does not know: {message}")
    return message


def main(schema: Path, folder: Path) -> None:
    chakra = compiled(schema)
    sent, received, kinds = Counter(), Counter(), Counter()
    paths = sorted(folder.glob("*.et"))
    for path in paths:
        metadata, *nodes = messages(path.read_bytes())
        version = known(chakra.GlobalMetadata.FromString(metadata)).version
        ids = set()
        for node in (known(chakra.Node.FromString(one)) for one in nodes):
            assert {*node.ctrl_deps, *node.data_deps} <= ids, f"{path}: node {node.id} depends on a later one"
            ids.add(node.id)
            name = chakra.NodeType.Name(node.type)
            kinds[name] += 1
            held = {one.name: getattr(one, one.WhichOneof("value")) for one in map(known, node.attr)}
            if name in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
                key = tuple(held[key] for key in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
                (sent if name == "COMM_SEND_NODE" else received)[key] += 1
    assert paths and sent == received, "senders and receivers do not match"
    print(
        f"{len(paths)} files of version {version}: {dict(sorted(kinds.items()))}; every message has both ends"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
