"""Ranks on GPUs: which process of the job runs in which domain, on which node and GPU, in which groups.

The order of ranks is that of `Share.gpus` from share to share: tensor rank fastest, then data rank, then
stage. It is Megatron's `tp-cp-ep-dp-pp` and DeepSpeed's `pipe, data, model`.
"""

import csv
import io
import re
from dataclasses import dataclass
from itertools import groupby

from replay.export.planned_job import PlannedJob


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
    """Returns a name of each domain of the cluster of letters, digits and hyphens, at most 40, all different:
    names in shells, host names and labels cannot be as free as those of a scenario."""
    found: list[str] = []
    for n, domain in enumerate(job.domains):
        name = plain(domain.name)
        found.append(name if name[:1].isalpha() and name not in found else f"site{n}")
    return tuple(found)


def plain(name: str) -> str:
    """Returns the letters, digits and hyphens of a name, in lower case, at most 40."""
    return re.sub("[^a-z0-9]+", "-", name.lower())[:40].strip("-")


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
