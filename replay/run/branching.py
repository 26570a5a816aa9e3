"""Branches: runs that start as another run did; their header, their world, their preparation."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ingest.core.errors import InputError, UsageError
from ingest.core.progress import Progress
from ingest.core.units import NS_PER_S, to_ns
from policy.core import registry
from replay.log.events import Event
from replay.run import runner, scenario_overrides
from replay.store import checkpoint_registry, world_reconstruction
from replay.store.event_sinks import Collect
from replay.store.run_header import Header, code_version
from twin.settings.disturbances import LinkChange


def branch(
    store: Path, base: Header, run_id: str, policy: str, checkpoint: str | None, decision: int,
    until_s: float | None,
) -> Header:  # fmt: skip
    """Returns the header of a run that branches off `run_id`, of header `base`, at `decision`.

    Raises:
        UsageError: no such policy, or a time outside the run.
    """
    registry.entry(policy)
    whole_ns = int(base.world["end_ns"])
    end_ns = whole_ns if until_s is None else to_ns(until_s)
    if not 0 < end_ns <= whole_ns:
        raise UsageError(f"--until {until_s:g}: the run goes from 0 to {whole_ns / NS_PER_S:g} s")
    if decision < 0:
        raise UsageError(f"--from-decision {decision}: decisions are numbered from 0")
    cut = {} if end_ns == base.window_ns else {"window_ns": base.window_ns}
    return Header(
        world={**base.world, "end_ns": end_ns},
        policy=policy,
        engine=base.engine,
        checkpoint=checkpoint_registry.resolve(store, policy, checkpoint),
        enforce_deadline=base.enforce_deadline,
        branch={"run": run_id, "decision": decision, **cut},
    )


def with_links(store: Path, header: Header, links: Sequence[LinkChange]) -> Header:
    """Returns the header of the same run in a world with changed links, made from the same measurements.

    Raises:
        UsageError: a change names an unknown domain. NotFoundError: the data set has left the store.
        InputError: it has changed since the run.
    """
    scenario = scenario_overrides.relinked(header.scenario(), links).model_dump(mode="json")
    changed = replace(header, world={**header.world, "scenario": scenario})
    setup = world_reconstruction.prepare(store, changed)
    refuse_another_world(header, world_reconstruction.remeasured(setup, header))
    return replace(changed, world=setup.header())


def prepare_branch(
    store: Path, base: Header, header: Header, events: Iterable[Event]
) -> tuple[runner.PreparedRun, tuple[str, ...]]:
    """Prepares a branch for its first run; `base` and `events` are header and events of the run that it
    leaves. The second value is a note where that run was made by other code.

    Raises:
        UsageError: the run made fewer decisions. InputError: its world cannot be reconstructed.
    """
    assert header.branch is not None
    kept = int(header.branch["decision"])
    decided = [event for event in events if event.type == "decided"]
    if kept > len(decided):
        raise UsageError(f"--from-decision {kept}: the run made {len(decided)} decisions")
    prepared, _ = runner.prepare_rerun(store, header, decided[:kept])
    refuse_another_world(header, world_reconstruction.changed(prepared.setup, header))
    same = dict(base.code) == code_version()
    return prepared, () if same else ("compared although the base run was made by other code",)


def refuse_another_world(header: Header, changed: Sequence[str]) -> None:
    """Refuses to compare runs of different worlds.

    Raises:
        InputError: an input in `changed` differs from that of the run that the branch leaves.
    """
    if not changed:
        return
    assert header.branch is not None
    measured = [name for name in changed if name != "window"]
    modelled = "this code makes other links of the same samples"
    why = world_reconstruction.describe_changes(measured, header) if measured else modelled
    raise InputError(
        f"{header.branch['run']}: {why}, and runs of different worlds are not compared; run "
        f"{header.scenario().name} anew and ask about that run"
    )


def truncated(
    store: Path, base: Header, stored: Sequence[Event], end_ns: int, progress: Progress
) -> list[Event]:
    """Returns the `stored` events of a run, of header `base`, as if it had ended at `end_ns`."""
    short = replace(base, world={**base.world, "end_ns": end_ns})
    decided = {event.payload["number"]: event.payload for event in stored if event.type == "decided"}
    setup = world_reconstruction.shortened(world_reconstruction.prepare(store, base), end_ns)
    prepared = runner.prepare_run(short, setup, lambda: runner.load_policy(store, short), script=decided)
    sink = Collect()
    runner.simulate(prepared, sink, progress)
    return sink.events
