"""Text files as the programs of other systems write them, as UTF-8 with line feeds, while they are read."""

import codecs
import io
from typing import BinaryIO

from ingest.core.text_files import encoding_of

_CHUNK = 1 << 18


def of(head: bytes) -> str | None:
    """Returns what has to be translated of a file that begins with `head`: the encoding of its byte order
    mark, or `cr` for text whose lines end in carriage returns; None where nothing has to be."""
    encoding = encoding_of(head)
    if encoding != "utf-8":
        return encoding
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    is_text = not any(byte < 32 and byte not in b"\t\r" for byte in head)
    return "cr" if is_text and b"\r" in head and _decodes(head) else None


def plain(data: bytes, translated: str | None) -> bytes:
    """Returns `data` as UTF-8 with line feeds; `translated` is what `of` says."""
    return data if translated is None else stream(io.BytesIO(data), translated).read()


def stream(raw: BinaryIO, translated: str) -> BinaryIO:
    """Returns a stream of the same text as UTF-8 with line feeds; bytes that are no text stay in UTF-8."""
    return io.BufferedReader(_Translated(raw, translated), _CHUNK)


def _decodes(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last letter may be cut
    except UnicodeDecodeError:
        return False
    return True


class _Translated(io.RawIOBase):
    """The translation of a stream, some of it at a time."""

    def __init__(self, raw: BinaryIO, translated: str):
        encoding = "utf-8" if translated == "cr" else translated
        errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
        self._raw, self._errors = raw, errors
        self._text = io.IncrementalNewlineDecoder(
            codecs.getincrementaldecoder(encoding)(errors), translate=True
        )
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while not self._ready:
            chunk = self._raw.read(_CHUNK)
            self._ready = self._text.decode(chunk, final=not chunk).encode("utf-8", self._errors)
            if not chunk:
                break
        data, self._ready = self._ready[: len(view)], self._ready[len(view) :]
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()
