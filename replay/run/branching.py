"""A run that leaves another one: its header, the world that both are run in, and its stage."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ingest.core.errors import InputError, UsageError
from ingest.core.progress import Progress
from ingest.core.units import NS_PER_S, to_ns
from policy.core import registry
from replay.store import checkpoint_registry as champion, world_reconstruction as past_world
from replay.run import scenario_overrides as options, runner
from replay.log.events import Event
from replay.store.run_header import Header, code_version
from replay.store.event_sinks import Collect
from twin.settings.disturbances import LinkChange


def branch(
    store: Path, played: Header, run_id: str, policy: str, checkpoint: str | None, decision: int,
    until_s: float | None,
) -> Header:  # fmt: skip
    """The header of a run that leaves `run_id`, of header `played`, at `decision`.

    Raises:
        UsageError: no such policy, or a moment that the run does not have.
    """
    registry.entry(policy)
    whole_ns = int(played.world["end_ns"])
    end_ns = whole_ns if until_s is None else to_ns(until_s)
    if not 0 < end_ns <= whole_ns:
        raise UsageError(f"--until {until_s:g}: the run goes from 0 to {whole_ns / NS_PER_S:g} s")
    if decision < 0:
        raise UsageError(f"--from-decision {decision}: decisions are numbered from 0")
    cut = {} if end_ns == played.window_ns else {"window_ns": played.window_ns}
    return Header(
        world={**played.world, "end_ns": end_ns},
        policy=policy,
        engine=played.engine,
        checkpoint=champion.resolve(store, policy, checkpoint),
        enforce_deadline=played.enforce_deadline,
        branch={"run": run_id, "decision": decision, **cut},
    )


def elsewhere(store: Path, header: Header, links: Sequence[LinkChange]) -> Header:
    """The same run in a world whose links are other ones, made from the same measurements.

    Raises:
        UsageError: a change names an unknown domain. NotFoundError: the data set has left the store.
        InputError: it is no longer what the run was made from.
    """
    scenario = options.relinked(header.scenario(), links).model_dump(mode="json")
    asked = replace(header, world={**header.world, "scenario": scenario})
    setup = past_world.prepare(store, asked)
    refuse_another_world(header, past_world.remeasured(setup, header))
    return replace(asked, world=setup.header())


def staged(
    store: Path, played: Header, header: Header, events: Iterable[Event]
) -> tuple[runner.Stage, tuple[str, ...]]:
    """The stage of a branch that has not run yet, and a note where the run that it leaves, of header `played`
    and with these `events`, was made by other code.

    Raises:
        UsageError: the run made fewer decisions. InputError: its world cannot be made again.
    """
    assert header.branch is not None
    kept = int(header.branch["decision"])
    decided = [event for event in events if event.type == "decided"]
    if kept > len(decided):
        raise UsageError(f"--from-decision {kept}: the run made {len(decided)} decisions")
    stage, _ = runner.restage(store, header, decided[:kept])
    refuse_another_world(header, past_world.changed(stage.setup, header))
    same = dict(played.code) == code_version()
    return stage, () if same else ("compared although the base run was made by other code",)


def refuse_another_world(header: Header, changed: Sequence[str]) -> None:
    """Say that a what-if would compare runs of different worlds, in place of comparing them.

    Raises:
        InputError: there is something that `changed` since the run that the branch leaves.
    """
    if not changed:
        return
    assert header.branch is not None
    measured = [name for name in changed if name != "window"]
    own = "this code makes other links of the same samples"
    why = past_world.told(measured, header) if measured else own
    raise InputError(
        f"{header.branch['run']}: {why}, and runs of different worlds are not compared; run "
        f"{header.scenario().name} anew and ask about that run"
    )


def cut(store: Path, played: Header, stored: Sequence[Event], end_ns: int, progress: Progress) -> list[Event]:
    """The `stored` events of a run, of header `played`, as they would be had it ended at `end_ns`."""
    short = replace(played, world={**played.world, "end_ns": end_ns})
    decided = {event.payload["number"]: event.payload for event in stored if event.type == "decided"}
    setup = past_world.shortened(past_world.prepare(store, played), end_ns)
    stage = runner.stage(short, setup, lambda: runner.load_policy(store, short), script=decided)
    sink = Collect()
    runner.play(stage, sink, progress)
    return sink.events
