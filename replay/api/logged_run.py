"""A run of a store: its key figures, events, decisions, audit and report."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from replay.audit.audit import AuditReport, audit
from replay.log.events import Event
from replay.log.run_log import RunReader
from replay.metrics.kpis import Kpis, of_events
from replay.report import page
from replay.store import run_index
from replay.store.run_header import Header, from_payload


@dataclass(frozen=True)
class Run:
    """One logged run; nothing is read before it is asked for."""

    store: Path
    id: str

    @property
    def _reader(self) -> RunReader:
        return RunReader(run_index.folder(self.store, self.id))

    @cached_property
    def header(self) -> Header:
        """Everything that the run follows from: scenario, traces, policy, seed, engine, code.

        Raises:
            NotFoundError: the run was stopped before anything was stored. DamageError: its log is damaged.
        """
        return from_payload(self._reader.header())

    @property
    def policy(self) -> str:
        """Name of the policy."""
        return self.header.policy

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return str(self.header.world["scenario"]["name"])

    @property
    def finished(self) -> bool:
        """True if the run reached its end; an unfinished one goes on with `twin replay --resume`."""
        return self._reader.finished

    @cached_property
    def kpis(self) -> Kpis:
        """Key figures from the events, in one pass."""
        return of_events(self.events())

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical events; equal inputs give equal digests."""
        return self._reader.digest()

    @property
    def chain_head(self) -> str:
        """Hash of the last manifest; kept elsewhere, it proves that the log was not rewritten."""
        return self._reader.chain_head()

    def events(self) -> Iterator[Event]:
        """Every event in order, upcast to the current version."""
        return self._reader.events()

    def decisions(self) -> list[dict[str, Any]]:
        """Payload of each decision: observation, candidates, plan and reason."""
        return [dict(event.payload) for event in self.events() if event.type == "decided"]

    def audit(self, *, chain_head: str | None = None) -> AuditReport:
        """Files, accounts, re-execution and the absence of look-ahead, checked."""
        return audit(self.store, self.id, chain_head=chain_head)

    def report(self, out: str | Path | None = None) -> Path:
        """Path of the self-contained HTML report, `<store>/reports/<run>.html` unless `out` is given."""
        return page.write(self.store, self.id, None if out is None else Path(out))

    def __repr__(self) -> str:
        return f"Run({self.id!r})"
