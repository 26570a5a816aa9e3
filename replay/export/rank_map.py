"""Ranks on GPUs: which process of the job runs in which domain, on which node and GPU, in which groups.

The order of ranks is that of `Share.gpus` from share to share: tensor rank fastest, then data rank, then
stage. It is Megatron's `tp-cp-ep-dp-pp` and DeepSpeed's `pipe, data, model`.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, groupby

from ingest.core.errors import UsageError
from replay.export.planned_job import PlannedJob

MAX_NAME = 24
"""Letters of a name: JobSet makes host names of two of them and numbers, and DNS allows 63."""


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Place of one rank. `node` counts from 0 inside the domain, `gpu` inside the node."""

    rank: int
    domain: str
    node: int
    gpu: int
    stage: int
    data: int
    tensor: int


@dataclass(frozen=True, slots=True)
class HostNode:
    """A node: its ranks from `first_rank` on run on its `gpus`, in that order."""

    domain: str
    node: int
    first_rank: int
    gpus: tuple[int, ...]

    @property
    def host(self) -> str:
        """Placeholder of its host name: `us-east-1-node0`."""
        return f"{self.domain}-node{self.node}"


def sites(job: PlannedJob) -> tuple[str, ...]:
    """Returns a name of each domain of the cluster of letters, digits and hyphens, all different.

    Names in shells, host names and labels cannot be as free as those of a scenario. A domain that has such a
    name keeps it; others get the nearest that no domain has.
    """
    wanted = [_of_letters(domain.name, f"site{n}") for n, domain in enumerate(job.domains)]
    kept = {domain.name for domain, name in zip(job.domains, wanted, strict=True) if domain.name == name}
    found: list[str] = []
    for domain, name in zip(job.domains, wanted, strict=True):
        taken = {*kept, *found} - {domain.name}
        found.append(name if name not in taken else next(one for one in _numbered(name) if one not in taken))
    return tuple(found)


def job_name(job: PlannedJob) -> str:
    """Returns the name of the job in schedulers: letters, digits and hyphens, the first a letter."""
    return _of_letters(job.name, f"plan-{plain(job.name)}"[:MAX_NAME].strip("-"))


def renamed(job: PlannedJob) -> dict[str, str]:
    """Returns the name in files and labels of each domain of the plan that could not keep its own."""
    names = sites(job)
    used = {share.domain for share in job.plan.shares}
    return {job.domains[k].name: names[k] for k in sorted(used) if names[k] != job.domains[k].name}


def check_names(job: PlannedJob) -> None:
    """Checks that files, hosts and labels keep the domains of a job apart, whoever made the names.

    Raises:
        UsageError: two domains, or two ranks, would be taken for one.
    """
    names = sites(job)
    if len({*names}) < len(job.domains):
        raise UsageError(f"two sites would have one name ({', '.join(names)}); rename one in the scenario")
    replicas = 1 if job.plan.sync is None else len(job.plan.shares)
    places = [(one.domain, one.node, one.gpu) for n in range(replicas) for one in ranks(job.replica(n))]
    if len({*places}) < len(places):
        raise UsageError("two processes of the plan would run on one GPU; rename the sites in the scenario")


def plain(name: str) -> str:
    """Returns the letters, digits and hyphens of a name, in lower case, at most `MAX_NAME`."""
    return re.sub("[^a-z0-9]+", "-", name.lower())[:MAX_NAME].strip("-")


def _of_letters(name: str, otherwise: str) -> str:
    """The plain name if it begins with a letter, as labels of DNS must."""
    found = plain(name)
    return found if found[:1].isalpha() else otherwise


def _numbered(name: str) -> Iterator[str]:
    for n in count(2):
        yield f"{name[: MAX_NAME - len(str(n)) - 1].strip('-')}-{n}"


def ranks(job: PlannedJob) -> tuple[RankPlace, ...]:
    """Returns the place of every rank of a pipeline, in order."""
    plan, names, stage = job.plan, sites(job), 0
    found: list[RankPlace] = []
    for share, domain in zip(plan.shares, job.used, strict=True):
        for n, gpu in enumerate(share.gpus):
            inner, rest = divmod(n, plan.dp * share.tp)
            node, local = divmod(gpu, domain.gpus_per_node)
            found.append(
                RankPlace(
                    len(found), names[share.domain], node, local, stage + inner, rest // share.tp,
                    rest % share.tp,
                )
            )  # fmt: skip
        stage += share.pp
    return tuple(found)


def nodes(job: PlannedJob) -> tuple[HostNode, ...]:
    """Returns the nodes in the order of their ranks, which follow each other on each node."""
    found = [
        HostNode(domain, node, members[0].rank, tuple(one.gpu for one in members))
        for (domain, node), group in groupby(ranks(job), lambda one: (one.domain, one.node))
        if (members := list(group))
    ]
    return tuple(found)


def table(job: PlannedJob) -> str:
    """Returns `ranks` as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(RankPlace.__slots__)
    writer.writerows([getattr(one, name) for name in RankPlace.__slots__] for one in ranks(job))
    return text.getvalue()
