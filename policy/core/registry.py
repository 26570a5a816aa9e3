"""Policies by name: those of this package, plugins of installed distributions, and those registered in this
process. The module of a policy is imported only when the policy is created.

A plugin is an entry point in the group `twin.policies` that names a class, or a function without arguments,
which returns a `policy.core.protocol.Policy`. It may have two attributes: `summary`, its line in the output
of `twin policies` (by default the first line of the docstring), and `weighted`, true if it follows the
weights of the scenario.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from ingest.core import plugins
from ingest.core.errors import InfeasibleError, NotFoundError, UsageError
from ingest.core.names import checked, unknown
from twin.core.plan import Schedule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from policy.core.protocol import Policy

GROUP = "twin.policies"
"""Group of the entry points of plugins."""
OPERATIONS = ("train", "retrain", "bench", "queue")
"""Logs in which no policy decided have one of these in place of a policy's name."""
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
UNCHUNKED: tuple[Schedule, ...] = ("gpipe", "1f1b", "crosspipe", "zb-h1")
"""Schedules whose stages are not divided into chunks."""


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One policy: `target` is "module:callable" or the callable itself; `learned` ones are created from a
    checkpoint, `weighted` ones follow the weights of the scenario. `schedules` are those of a job that it can
    plan, `distribution` is the origin of a plugin."""

    target: "str | Callable[..., Policy]"
    summary: str
    learned: bool = False
    weighted: bool = False
    schedules: tuple[Schedule, ...] = SCHEDULES
    distribution: str | None = None

    def load(self) -> "Callable[..., Policy]":
        """Returns the callable that creates the policy."""
        if callable(self.target):
            return self.target
        module, _, attribute = self.target.partition(":")
        return cast("Callable[..., Policy]", getattr(import_module(module), attribute))


POLICIES: dict[str, PolicyEntry] = {
    "static": PolicyEntry(
        "policy.baselines.static:Static", "equal cuts over the domains in index order, planned once"
    ),
    "single": PolicyEntry(
        "policy.baselines.single:Single", "the fastest plan in a single domain, planned once"
    ),
    "history": PolicyEntry(
        "policy.baselines.history:History",
        "the plan that would have done most over the past before the run, kept; free knobs turned",
    ),
    "history-hour": PolicyEntry(
        "policy.baselines.history_hour:HistoryHour",
        "the best schedule of plans by hour of the day over the past, moves paid for; free knobs turned",
    ),
    "greedy": PolicyEntry(
        "policy.baselines.greedy:Greedy",
        "the best plan for the present links at every trigger, migration cost ignored",
    ),
    "mpc": PolicyEntry(
        "policy.baselines.mpc:Mpc",
        "model-predictive control: forecast horizon, migration cost, hysteresis",
        weighted=True,
    ),
    "joint": PolicyEntry(
        "policy.baselines.joint:Joint",
        "mpc within the domains that a joint choice for all jobs grants; shared links are priced",
        weighted=True,
    ),
    "sailor": PolicyEntry(
        "policy.planners.sailor:Sailor",
        "Sailor-style dynamic program over regions, ranked by the twin's cost model",
    ),
    "sailor-native": PolicyEntry(
        "policy.planners.sailor:SailorNative", "the same, ranked by Sailor's own formula"
    ),
    "alpa": PolicyEntry(
        "policy.planners.alpa:Alpa",
        "Alpa-style dynamic program over layer blocks and submeshes, ranked by the twin's cost model",
    ),
    "alpa-native": PolicyEntry(
        "policy.planners.alpa:AlpaNative", "the same, ranked by Alpa's own objective, which ignores links"
    ),
    "megatron": PolicyEntry(
        "policy.planners.megatron:Megatron", "Megatron-LM's sizing rule, stages in domain order"
    ),
    "megatron-flat": PolicyEntry(
        "policy.planners.megatron_flat:MegatronFlat", "the same rule over all GPUs as one cluster"
    ),
    "zero": PolicyEntry(
        "policy.planners.zero:Zero",
        "DeepSpeed's ZeRO: data parallelism alone, sharded inside domains",
        schedules=UNCHUNKED,
    ),
    "diloco": PolicyEntry(
        "policy.planners.diloco:DiLoCo",
        "a replica in each domain, local SGD with the best fixed H",
        schedules=UNCHUNKED,
    ),
    "mast": PolicyEntry(
        "policy.planners.mast:Mast", "MAST-style: the whole job in the domain that wins an auction"
    ),
    "atlas": PolicyEntry(
        "policy.planners.atlas:Atlas", "Atlas's data-centre selection: even stages, largest domains first"
    ),
    "crosspipe": PolicyEntry(
        "policy.planners.crosspipe:CrossPipe",
        "CrossPipe-style: the best schedule for a given stage placement, or data parallelism",
        schedules=UNCHUNKED,
    ),
    "dtfm": PolicyEntry(
        "policy.planners.dtfm:DtFm",
        "DT-FM-style: the order of domains with the shortest communication path",
    ),
    "dtfm-native": PolicyEntry("policy.planners.dtfm:DtFmNative", "the same, ranked by DT-FM's own cost"),
    "hyperion": PolicyEntry(
        "policy.planners.hyperion:Hyperion",
        "Hyperion-style layer splits, ranked by the twin's cost model; index order beyond four domains",
    ),
    "hyperion-native": PolicyEntry(
        "policy.planners.hyperion:HyperionNative",
        "the same under Megatron's sizes, ranked by Hyperion's own objective",
    ),
    "sla-morl": PolicyEntry(
        "policy.planners.sla_morl:SlaMorl",
        "SLA-MORL-style: nodes added or removed by a small actor-critic",
        weighted=True,
    ),
    "hippo": PolicyEntry(
        "policy.hippo.agent.agent:HiPpo",
        "two-level PPO with a graph encoder",
        learned=True,
        weighted=True,
        schedules=("1f1b", "gpipe"),
    ),
}


SHIPPED = frozenset(POLICIES)


def register(
    name: str, factory: "Callable[[], Policy]", *, summary: str = "", weighted: bool = False
) -> None:
    """Makes a policy known in this process under `name`, the name that headers of its runs record.

    A name registered before gets the new factory. Worker processes know it only if they are forked.

    Raises:
        UsageError: the name is that of a shipped policy, of a plugin or of an operation, or is no name.
    """
    checked(name, "policy name")
    if name in SHIPPED or name in OPERATIONS or name in _plugins()[0]:
        raise UsageError(f"policy name {name!r} is taken: choose another")
    POLICIES[name] = PolicyEntry(factory, summary or _summary(factory), weighted=weighted)


def names() -> tuple[str, ...]:
    """Returns the names of all policies: shipped, registered, then plugins. Imports none."""
    return (*POLICIES, *_plugins()[0])


def known(name: str) -> bool:
    """Tells whether a policy has this name."""
    return name in POLICIES or name in _plugins()[0]


def listed() -> tuple[dict[str, PolicyEntry], tuple[str, ...]]:
    """Returns every policy's entry by name, and a sentence for each plugin that cannot be used. Imports
    plugins, for their summaries."""
    points, left_out = _plugins()
    found, problems = dict(POLICIES), list(left_out)
    for name, point in points.items():
        try:
            found[name] = _plugin_entry(point)
        except UsageError as error:
            problems.append(str(error))
    return found, tuple(problems)


def entry(name: str) -> PolicyEntry:
    """Returns the entry of that name.

    Raises:
        UsageError: no policy has this name, or it is a plugin that cannot be imported.
    """
    if name in POLICIES:
        return POLICIES[name]
    points, left_out = _plugins()
    if name in points:
        return _plugin_entry(points[name])
    raise UsageError("; ".join([unknown("policy", name, names()), *left_out]))


@cache
def _plugins() -> tuple[dict[str, "EntryPoint"], list[str]]:
    """Returns the entry points of plugins by name, not imported, and a sentence for each left out."""
    return plugins.discover(GROUP, SHIPPED.union(OPERATIONS))


def _plugin_entry(point: "EntryPoint") -> PolicyEntry:
    try:
        factory = point.load()
        if not callable(factory):
            raise ValueError(f"{point.value} is not callable")
    except (Exception, SystemExit) as error:
        raise UsageError(plugins.left_out(point, error)) from error
    return PolicyEntry(
        factory,
        _summary(factory),
        weighted=bool(getattr(factory, "weighted", False)),
        distribution=plugins.origin(point),
    )


def _summary(factory: Any) -> str:
    """Returns the `summary` attribute or the first line of the docstring."""
    text = getattr(factory, "summary", None) or factory.__doc__ or ""
    return str(text).strip().partition("\n")[0]


def check_schedule(name: str, schedule: Schedule) -> None:
    """Checks that the policy can plan jobs with this schedule.

    Raises:
        InfeasibleError: it cannot. UsageError: no policy has this name.
    """
    accepted = entry(name).schedules
    if schedule not in accepted:
        raise InfeasibleError(
            f"{name} plans under schedule {', '.join(accepted)}, not {schedule}: change job.schedule in the"
            " scenario, or take a policy that asks the twin about every plan, such as mpc"
        )


def create(name: str, *, checkpoint: Path | None = None) -> "Policy":
    """Returns a new policy of that name.

    Raises:
        UsageError: no policy has this name, or it is a plugin that cannot be imported.
        NotFoundError: a learned policy without a checkpoint.
    """
    found = entry(name)
    if not found.learned:
        return found.load()()
    if checkpoint is None:
        raise NotFoundError(f"policy {name!r} needs a trained checkpoint: run `twin train` first")
    return found.load()(checkpoint)
