"""Names of policies and where they live; a policy's module is imported only when it is created."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import cast, get_args

from ingest.core.errors import InfeasibleError, NotFoundError, UsageError
from policy.core.protocol import Policy
from twin.core.plan import Schedule

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
WHOLE: tuple[Schedule, ...] = ("gpipe", "1f1b", "crosspipe")
"""Schedules of stages that are not cut into chunks."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered policy: `target` is "module:callable"; `learned` ones are created from a checkpoint,
    `weighted` ones follow the weights of the scenario. `schedules` are those of a job that it can plan."""

    target: str
    summary: str
    learned: bool = False
    weighted: bool = False
    schedules: tuple[Schedule, ...] = SCHEDULES

    def load(self) -> Callable[..., Policy]:
        """The callable that creates the policy."""
        module, _, attribute = self.target.partition(":")
        return cast(Callable[..., Policy], getattr(import_module(module), attribute))


POLICIES: dict[str, Entry] = {
    "static": Entry(
        "policy.baselines.static:Static", "equal cuts over the domains in index order, decided once"
    ),
    "single": Entry("policy.baselines.single:Single", "the fastest single domain, decided once"),
    "greedy": Entry(
        "policy.baselines.greedy:Greedy", "the best plan now at every trigger, whatever the move costs"
    ),
    "mpc": Entry(
        "policy.control.mpc:Mpc", "forecast over a horizon, moving cost and hysteresis", weighted=True
    ),
    "sailor": Entry(
        "policy.planners.sailor:Sailor", "Sailor-style program over regions, graded by the referee"
    ),
    "sailor-native": Entry("policy.planners.sailor:SailorNative", "the same, picked by Sailor's own formula"),
    "alpa": Entry(
        "policy.planners.alpa:Alpa", "Alpa-style program over layer blocks and meshes, graded by the referee"
    ),
    "alpa-native": Entry("policy.planners.alpa:AlpaNative", "the same by Alpa's own value, links neglected"),
    "megatron": Entry(
        "policy.planners.megatron:Megatron", "Megatron-LM's sizing rule, stages in domain order"
    ),
    "megatron-flat": Entry(
        "policy.planners.megatron_flat:MegatronFlat", "the same rule, blind to where domains end"
    ),
    "zero": Entry(
        "policy.planners.zero:Zero",
        "DeepSpeed's ZeRO: data parallelism alone, shards inside domains",
        schedules=WHOLE,
    ),
    "diloco": Entry(
        "policy.planners.diloco:DiLoCo",
        "a replica in each domain, local SGD with the best fixed H",
        schedules=WHOLE,
    ),
    "mast": Entry(
        "policy.planners.mast:Mast", "MAST-style: the job whole in one domain, by auction between all"
    ),
    "atlas": Entry(
        "policy.planners.atlas:Atlas", "Atlas's data-centre selection: even stages, largest domains first"
    ),
    "crosspipe": Entry(
        "policy.planners.crosspipe:CrossPipe",
        "CrossPipe-style: the schedule for a given stage map, or data parallelism",
        schedules=WHOLE,
    ),
    "dtfm": Entry(
        "policy.planners.dtfm:DtFm",
        "DT-FM's shortest path through groups kept in domains, which leave its genetic search no choice",
    ),
    "dtfm-native": Entry("policy.planners.dtfm:DtFmNative", "the same, picked by DT-FM's own cost"),
    "hyperion": Entry(
        "policy.planners.hyperion:Hyperion",
        "Hyperion-style splits, graded by the referee; beyond four domains in index order only",
    ),
    "hyperion-native": Entry(
        "policy.planners.hyperion:HyperionNative", "the same in Megatron's size, by Hyperion's own objective"
    ),
    "sla-morl": Entry(
        "policy.planners.sla_morl:SlaMorl",
        "SLA-MORL-style: nodes up or down by a small actor-critic",
        weighted=True,
    ),
    "hippo": Entry(
        "policy.hippo.agent.agent:HiPpo",
        "two-level PPO with a graph encoder",
        learned=True,
        weighted=True,
        schedules=("1f1b", "gpipe"),
    ),
}


def names() -> tuple[str, ...]:
    """Every policy name, in registry order."""
    return tuple(POLICIES)


def entry(name: str) -> Entry:
    """The entry of that name.

    Raises:
        UsageError: no policy has this name.
    """
    if name not in POLICIES:
        close = get_close_matches(name, POLICIES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UsageError(f"unknown policy {name!r}: {hint}known are {', '.join(POLICIES)}")
    return POLICIES[name]


def check_schedule(name: str, schedule: Schedule) -> None:
    """That the policy can plan jobs with this schedule.

    Raises:
        InfeasibleError: it cannot. UsageError: no policy has this name.
    """
    known = entry(name).schedules
    if schedule not in known:
        raise InfeasibleError(
            f"{name} plans under schedule {', '.join(known)}, not {schedule}: change job.schedule in the"
            " scenario, or take a policy that asks the twin about every plan, such as mpc"
        )


def create(name: str, *, checkpoint: Path | None = None) -> Policy:
    """A new policy of that name.

    Raises:
        UsageError: no policy has this name.
        NotFoundError: a learned policy without a checkpoint.
    """
    found = entry(name)
    if not found.learned:
        return found.load()()
    if checkpoint is None:
        raise NotFoundError(f"policy {name!r} needs a trained checkpoint: run `twin train` first")
    return found.load()(checkpoint)
