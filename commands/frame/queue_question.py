"""What `twin queue` is asked: its options as they were said, what they mean, and which do not go together."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Union

from commands.frame.options_as_settings import given
from commands.frame.outage_options import OutageWords
from commands.frame.power_options import PowerWords
from ingest.core.errors import UsageError

if TYPE_CHECKING:
    from ingest.readers.clusters.profiled_runs import RunProfiles
    from ingest.readers.job_logs import LakeJobs
    from policy.queue.checkpoint import LearnedOrder
    from twin.queue.jobs import Prediction
    from twin.queue.rules import QueueRules
    from twin.queue.shares import FairShares
    from twin.sharing.changes import ChangeRules


@dataclass(frozen=True)
class QueueQuestion:
    """The options of `twin queue`, by the names of its parameters, and the store.

    Raises:
        UsageError: from any of its properties: words that mean nothing, or not together.
    """

    source: Path | None
    dataset: str | None
    policies: tuple[str, ...]
    processors: int | None
    nodes: str | None
    placements: tuple[str, ...]
    checkpoint: Path | None
    prediction: "Prediction"
    rules: str
    profiles: Path | None
    profile_gpu: str | None
    solve: str | None
    target: str | None
    changes: str | None
    most_preemptions: int | None
    oversubscription: float | None
    dependencies: bool
    shares: Path | None
    keep: bool
    power: PowerWords
    outages: OutageWords
    store: Path

    @cached_property
    def jobs(self) -> Union[Path, "LakeJobs"]:
        """The log, or jobs of the lake; a LOG that is named wins over a file of settings."""
        from ingest.readers.job_logs import LakeJobs

        dataset = self.dataset if self.source is None or given("dataset") else None
        if (self.source is None) == (dataset is None):
            raise UsageError("name a LOG, or --dataset NAME of the lake, and not both")
        return self.source if self.source is not None else LakeJobs(self.store, str(dataset))

    @cached_property
    def held(self) -> "QueueRules":
        """The rules by which events of one instant follow each other."""
        from twin.queue.rules import RULES, rule_set
        from twin.sharing.changes import CHANGES

        if self.rules in CHANGES and self.rules not in RULES:
            raise UsageError(
                f"--rules says how a simulator treats events: for {self.rules} say --changes {self.rules}"
            )
        return rule_set(self.rules)

    @cached_property
    def measured(self) -> "RunProfiles | None":
        """The measured profiles, if any are named."""
        from ingest.readers.clusters.profiled_runs import RunProfiles

        if self.profile_gpu is not None and self.profiles is None:
            raise UsageError("--profile-gpu belongs to --profiles DIR")
        return None if self.profiles is None else RunProfiles(self.profiles, self.profile_gpu)

    @cached_property
    def changes_runs(self) -> bool:
        """True if runs may be changed: by an option, or by a scheduler that does it."""
        from policy.sharing import registry

        self._check_words()
        registry.check_known(self.policies)
        asked = self.changes is not None or any(name in registry.RECIPES for name in self.policies)
        if self.most_preemptions is not None and not asked:
            raise UsageError("--most-preemptions goes with --changes, or a policy that preempts, as srtf")
        if self.oversubscription is not None and not asked:
            raise UsageError("--oversubscription goes with --changes, or a policy on shared links, as crux")
        return asked

    @property
    def change_rules(self) -> "ChangeRules":
        """The rules by which running jobs are changed, its cost, and how often it may hit one."""
        from twin.sharing.changes import STEADY, change_rules

        rules = change_rules(self.changes or STEADY.name)
        most = self.most_preemptions
        return rules if most is None else replace(rules, most_preemptions=most)

    @cached_property
    def learned(self) -> "LearnedOrder | None":
        """The order of the checkpoint; None without one."""
        if self.checkpoint is None:
            return None
        from policy.queue import checkpoint as stored
        from policy.queue.registry import LEARNED

        if LEARNED not in self.policies:
            raise UsageError(f"--checkpoint belongs to -p {LEARNED}: add it")
        if self.power.asked or self.nodes is not None or self.solve is not None or self.keep:
            raise UsageError(
                f"-p {LEARNED} goes with one pool: without --nodes, --solve, --keep and options of power"
            )
        return stored.load(self.checkpoint)

    @cached_property
    def fair_shares(self) -> "FairShares":
        """The shares of accounts and users: 1 each without a file."""
        from policy.queue.registry import ACCOUNTS
        from twin.queue.shares import EQUAL, read_shares

        if self.shares is None:
            return EQUAL
        if not any(name.startswith(ACCOUNTS) for name in self.policies):
            raise UsageError(f"--shares belongs to -p {ACCOUNTS}: add it")
        if self.power.asked or self.nodes is not None or self.solve is not None or self.keep:
            raise UsageError("--shares goes with one pool: without --nodes, --solve, --keep and power")
        return read_shares(self.shares)

    @property
    def kept_in(self) -> Path | None:
        """The store, where runs are to be kept."""
        return self.store if self.keep else None

    def _check_words(self) -> None:
        """Checks what holds for every way to play the queue."""
        _ = self.jobs
        if self.outages.asked:
            self._check_outages()
        if self.nodes is None and self.placements:
            raise UsageError("--placement: one pool of processors has no places; add --nodes")
        _ = self.held, self.measured

    def _check_outages(self) -> None:
        self.outages.plan()
        if self.nodes is None:
            raise UsageError("--outages and --mtbf-h: one pool of processors has no nodes; add --nodes")

    def check(self) -> None:
        """Checks which options go together where nobody changes running jobs.

        Raises:
            UsageError: two do not.
        """
        lone = self.source is None or self.nodes is not None or self.solve is not None
        if self.measured is not None and lone:
            raise UsageError("--profiles goes with a LOG on one pool: without --dataset, --nodes and --solve")
        if (self.solve is None) != (self.target is None):
            raise UsageError("--solve gpus and --target FIGURE=VALUE go together: say both")
        _ = self.learned, self.fair_shares
        if self.outages.notice_s is not None or self.outages.notice_slow_s is not None:
            raise UsageError(
                "--notice-s and --notice-slow-s go with --changes: elsewhere faults are known at once"
            )
        self._check_dependencies()
        if self.power.asked and (self.solve is not None or self.measured is not None):
            raise UsageError("options of power go without --solve and --profiles")
        if self.power.sleep is not None and self.nodes is None:
            raise UsageError("--sleep-after: one pool of processors has no nodes that sleep; add --nodes")
        if self.nodes is not None:
            self._check_nodes()
        if self.target is not None and (self.keep or len(self.placements) > 1):
            raise UsageError("--solve goes without --keep and with one --placement: leave them out")

    def _check_dependencies(self) -> None:
        beside = self.changes_runs or self.nodes is not None or self.solve is not None or self.power.asked
        apart = self.source is None or self.checkpoint is not None
        if self.dependencies and (beside or apart):
            raise UsageError(
                "--dependencies goes with a LOG on one pool: leave --dataset, --nodes, --solve, "
                "--checkpoint, options of power and schedulers that change runs out"
            )

    def _check_nodes(self) -> None:
        if self.power.of_one_gpu:
            raise UsageError(
                "--nodes say themselves which GPUs there are: leave --gpu, --idle-power, --busy-power and "
                "--supplies out"
            )
        if self.processors is not None and self.target is None:
            raise UsageError("--nodes goes without --processors: take one of them")
        if self.power.asked and self.keep:
            raise UsageError("--keep of power is that of one pool: leave --nodes out, or its options")

    def check_beside_changes(self) -> None:
        """Refuses options that mean nothing where running jobs are changed.

        Raises:
            UsageError: one is given.
        """
        self._check_dependencies()
        if self.shares is not None:
            raise UsageError("--shares goes with schedulers that leave running jobs alone; leave it out")
        if self.keep:
            raise UsageError(
                "--keep keeps runs that nobody changes; leave it out beside schedulers that preempt"
            )
        if self.placements:
            raise UsageError(
                "--placement: schedulers that change runs consolidate jobs on nodes; leave it out"
            )
        if self.solve is not None or self.power.asked:
            raise UsageError("--solve and options of power go with schedulers that leave running jobs alone")
        if self.checkpoint is not None:
            raise UsageError("--checkpoint goes with schedulers that leave running jobs alone; leave it out")
        if given("rules"):
            raise UsageError(
                "--rules goes with schedulers that leave running jobs alone; say --changes SET here"
            )
        if self.nodes is not None and self.processors is not None:
            raise UsageError("--nodes goes without --processors: take one of them")
