"""The run that a service goes on with: the unfinished one of its configuration, or a new one."""

from pathlib import Path
from typing import NamedTuple

from replay.log.run_log import RunReader
from replay.store import run_index, world_reconstruction
from replay.store.run_header import Header, code_version, from_payload
from twin.scenario.prepare import PreparedScenario


class FoundRun(NamedTuple):
    """A run, its header and world as they were when it began, and what is to be said about others."""

    run_id: str
    header: Header
    setup: PreparedScenario
    notes: tuple[str, ...]
    left: str | None = None
    """Run of other code or measurements that a new one takes the place of; its jobs go on waiting."""
    ended: bool = False
    """The run was ended by a renewal; the one that takes its place has not begun."""


def found(store: Path, header: Header, setup: PreparedScenario) -> FoundRun:
    """Returns the unfinished run of this configuration that can be gone on with, or a new one."""
    scenario, notes, left = setup.scenario.name, tuple[str, ...](), None
    for run in reversed(
        run_index.same_config(store, scenario, header.policy, header.seed, header.config_digest)
    ):
        reader = RunReader(run_index.folder(store, run))
        if not reader.manifests():
            continue
        stored = from_payload(reader.header())
        if stored.live is None:  # a replay under the same choices
            continue
        why = "the code has changed" if dict(stored.code) != code_version() else ""
        then = setup if why else world_reconstruction.prepare(store, stored)
        if not why and world_reconstruction.changed(then, stored):
            why = "the measurements have changed"
        if not why:
            return FoundRun(run, stored, then, (), ended=reader.finished)
        notes, left = (f"{run} is left as it is: {why} since; a new run begins",), run
        break
    return FoundRun(new_id(store, header, setup), header, setup, notes, left)


def new_id(store: Path, header: Header, setup: PreparedScenario) -> str:
    """Returns the name of a run that is to begin."""
    name = setup.scenario.name
    return run_index.new_id(store, name, header.policy, header.seed, header.config_digest)
