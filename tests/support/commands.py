"""Call a command of `twin` in this process, and keep a store that commands read."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cli
from tests.support.tally import tally

Call = Callable[..., "Done"]
ROOT = Path(__file__).resolve().parents[2]
STATIC, SINGLE = "tri-7b-static", "tri-7b-single"
"""How the names of the runs begin that the store has."""


class Done:
    """What a command left: its exit code, its output, its words to the user."""

    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """The one object on stdout; anything beside it is an error here."""
        return json.loads(self.out)


def caller(capture: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    """A function of a store (None: the words say it) and the words of a command; the streams are captured as
    the process has them."""

    def called(store: Path | None, *words: str) -> Done:
        named = [] if store is None else ["--store", str(store)]
        monkeypatch.setattr(sys, "argv", ["twin", *named, *words])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capture.readouterr()
        assert b"Traceback" not in err
        tally("commands", 1)
        return Done(code, out, err.decode())

    return called


def fill(store: Path) -> None:
    """Store the shipped traces, a run of `static` and a run of `single` in the world of tri-7b."""
    from ingest.pipeline.ingest import ingest
    from replay.run import runner
    from twin.scenario.prepare import load

    ingest([ROOT / "traces"], store)
    for policy in ("static", "single"):
        runner.run(store, policy=policy, scenario=load("tri-7b"))
