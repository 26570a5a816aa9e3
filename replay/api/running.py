"""Runs and comparisons from Python, with policies by name or as objects."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from ingest.core.errors import UsageError
from policy.core import registry
from policy.core.protocol import Policy
from replay.api.logged_run import Run
from replay.api.store import PathLike, Store
from replay.bench import comparison
from replay.bench.comparison import Comparison
from replay.bench.world import BenchWorld
from replay.run import runner
from twin.engines.engine import EngineName
from twin.scenario.prepare import Scenario, Window, load
from twin.traces.time_range import TimeRange

PolicyLike = str | Policy | Callable[[], Policy]
"""A registered name, a policy object (each job gets a copy) or a class or function that creates one."""


def store_of(store: Store | PathLike | None) -> Store:
    """The store itself, that at a path, or the default one (`TWIN_STORE`, else `.twin`)."""
    return store if isinstance(store, Store) else Store(store)


def scenario_of(scenario: str | Scenario) -> Scenario:
    """The scenario itself, or that of a shipped name or YAML file.

    Raises:
        NotFoundError: no such scenario. UsageError: the file does not fit.
    """
    return scenario if isinstance(scenario, Scenario) else load(scenario)


def replay(
    policy: PolicyLike = "hippo",
    scenario: str | Scenario = "tri-7b",
    *,
    store: Store | PathLike | None = None,
    dataset: str | None = None,
    window: Window | tuple[str | None, str | None] = "test",
    engine: EngineName = "kernel",
    seed: int | None = None,
    checkpoint: str | None = None,
) -> Run:
    """The logged run of a policy over a window of the scenario's trace.

    `window` is a part of the trace (`train`, `validate`, `test`, `all`) or (from, to) as `twin replay --from
    --to` takes them. `checkpoint` is a digest in the store, for learned policies. The run of a policy object
    bears the object's `name`; to audit it later the policy must be registered again under that name.

    Raises:
        UsageError: unknown policy, or a name that a shipped policy has. NotFoundError: the lake lacks the
        data set. InfeasibleError: the policy cannot place the model.
    """
    target = store_of(store)
    done = runner.run(
        target.path, policy=registered_name(policy), scenario=scenario_of(scenario), dataset=dataset,
        window=_part(window), engine=engine, seed=seed, checkpoint=checkpoint,
    )  # fmt: skip
    return Run(target.path, done.run_id)


def compare(
    policies: Sequence[PolicyLike] = comparison.DEFAULT_POLICIES,
    scenario: str | Scenario = "tri-7b",
    *,
    store: Store | PathLike | None = None,
    dataset: str | None = None,
    window: Window | tuple[str | None, str | None] = "test",
    engine: EngineName = "kernel",
    seed: int | None = None,
    bound: bool = True,
) -> Comparison:
    """Policies in the same world, each as a run of the store, and with `bound` the clairvoyant bound.

    `window` is that of `replay`: a part of the trace, or (from, to). A policy that cannot place the model is
    a row with the reason.

    Raises:
        UsageError: unknown policy, or one named twice. NotFoundError: the lake lacks the data set.
    """
    world = BenchWorld.of(scenario_of(scenario), dataset, _part(window), engine, seed)
    names = [registered_name(policy) for policy in policies]
    return comparison.compare(store_of(store).path, names, world, with_bound=bound)


def _part(window: Window | tuple[str | None, str | None]) -> Window | TimeRange:
    """The window as the runner takes it; of two times that are both None, the test window."""
    return window if isinstance(window, str) else TimeRange.parse(*window) or "test"


def registered_name(policy: PolicyLike) -> str:
    """The name under which the registry creates `policy`; an object is registered for this process.

    Raises:
        UsageError: no such policy, or the object has no name or that of another policy.
    """
    if isinstance(policy, str):
        registry.entry(policy)
        return policy
    create = policy if callable(policy) else lambda: deepcopy(policy)
    name = getattr(policy, "name", None) or getattr(create(), "name", None)
    if not isinstance(name, str) or not name:
        raise UsageError(f"{policy!r} has no `name`; a policy has `name`, `reset` and `decide`")
    registry.register(name, create, summary=_first_line(policy))
    return name


def _first_line(policy: Any) -> str:
    return ((policy if isinstance(policy, type) else type(policy)).__doc__ or "").strip().split("\n")[0]
