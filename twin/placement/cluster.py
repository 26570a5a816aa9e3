"""Nodes of a cluster: how many GPUs of which model each has, its CPU and its memory."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

import numpy as np

from ingest.core.errors import UsageError
from twin.placement.recipe import Int

MILLI = 1000
"""Thousandths of a GPU, and of a CPU core, that one has."""
MOST_GPUS, MOST_NODES = 64, 1_000_000
"""GPUs of a node and nodes of a cluster lie at or below them."""
_GROUP = re.compile(r"(?:(\d{1,6})\s*[xX]\s*)?(\d{1,7})\s*[xX]\s*(\d{1,3})\s+([A-Za-z][\w.+-]{0,40})")


@dataclass(frozen=True, eq=False)
class NodeCluster:
    """Nodes in their order, one element a node; `model` is the place in `models`, `rack` counts from 0.

    `cpu_milli` and `memory_mib` are 0 in a cluster of which they are not known: there nobody is asked for
    them. Where racks are not known all nodes are in one."""

    models: tuple[str, ...]
    model: Int
    gpus: Int
    cpu_milli: Int
    memory_mib: Int
    rack: Int

    @classmethod
    def of_nodes(
        cls, gpus: Sequence[int] | Int, models: Sequence[str], cpu_milli: Sequence[int] | Int | None = None,
        memory_mib: Sequence[int] | Int | None = None, racks: Sequence[str] | Sequence[int] | None = None,
    ) -> Self:  # fmt: skip
        """Returns the cluster of columns; models and racks are numbered in the order in which they come.

        Raises:
            UsageError: no node, a node without GPUs, or more than can be simulated.
        """
        named = tuple(dict.fromkeys(models))
        column = np.asarray(gpus, np.int64)
        if not len(column) or len(column) > MOST_NODES:
            raise UsageError(f"a cluster of {len(column):,} nodes; it has 1 to {MOST_NODES:,}")
        if column.min() < 1 or column.max() > MOST_GPUS:
            wrong = column.min() if column.min() < 1 else column.max()
            raise UsageError(f"a node of {wrong} GPUs; it has 1 to {MOST_GPUS}: take the others out")
        place = {name: at for at, name in enumerate(named)}
        rack_of = {name: at for at, name in enumerate(dict.fromkeys(racks or ()))}
        zero = np.zeros(len(column), np.int64)
        return cls(
            named, np.array([place[one] for one in models], np.int64), column,
            zero if cpu_milli is None else np.asarray(cpu_milli, np.int64),
            zero if memory_mib is None else np.asarray(memory_mib, np.int64),
            zero if racks is None else np.array([rack_of[one] for one in racks], np.int64),
        )  # fmt: skip

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the cluster that words describe, as `8 x 8 A100-80, 4 x 8 V100`: nodes x GPUs, and a model.

        `4 x 8 x 8 A100-80` are 4 racks of 8 such nodes; a group without racks beside one with them is a rack.

        Raises:
            UsageError: they describe none.
        """
        gpus, models, rack_of, racked = list[int](), list[str](), list[int](), False
        for part in text.split(","):
            found = _GROUP.fullmatch(part.strip())
            if found is None:
                raise UsageError(
                    f"--nodes: {part.strip()[:60]!r} is no group of nodes; write NODES x GPUS MODEL, "
                    "as 8 x 8 A100-80, or RACKS x NODES x GPUS MODEL, or name a CSV file of nodes"
                )
            racks, each = int(found[1] or 1), int(found[2])
            nodes, before = racks * each, rack_of[-1] + 1 if rack_of else 0
            if not 0 < nodes <= MOST_NODES - len(gpus):
                raise UsageError(
                    f"--nodes: {part.strip()!r}: a cluster has 1 to {MOST_NODES:,} nodes of 1 GPU or more"
                )
            gpus += [int(found[3])] * nodes
            models += [found[4]] * nodes
            rack_of += [before + one // each for one in range(nodes)]
            racked = racked or found[1] is not None
        return cls.of_nodes(gpus, models, racks=rack_of if racked else None)

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def total_gpus(self) -> int:
        """Returns the GPUs of all nodes."""
        return int(self.gpus.sum())

    @property
    def racks(self) -> int:
        """Returns how many racks there are."""
        return int(self.rack.max()) + 1

    def gpus_of(self, models: Sequence[int]) -> list[int]:
        """Returns the GPUs of all nodes of each model."""
        return [int(self.gpus[self.model == one].sum()) for one in models]

    def largest(self) -> Int:
        """Returns the GPUs of the largest node of each model (models,)."""
        return np.array([self.gpus[self.model == one].max() for one in range(len(self.models))], np.int64)

    def nearest(self, model: str) -> str:
        """Returns a hint at the models that the cluster has, for the message about one it has not."""
        by_fold = {one.lower(): one for one in self.models}
        close = get_close_matches(model.lower(), by_fold, n=2)
        named = " or ".join(by_fold[one] for one in close) if close else ", ".join(self.models[:8])
        return f"did you mean {named}?" if close else f"it has {named}"

    def describe(self) -> str:
        """Returns the cluster in words, nodes of a kind together."""
        kinds: dict[tuple[int, int], int] = {}
        for kind in zip(self.gpus.tolist(), self.model.tolist(), strict=True):
            kinds[kind] = kinds.get(kind, 0) + 1
        said = [f"{count} x {gpus} {self.models[model]}" for (gpus, model), count in kinds.items()]
        words = ", ".join(said[:6]) + (f" and {len(said) - 6} kinds more" if len(said) > 6 else "")
        return f"{words} in {self.racks} racks" if self.racks > 1 else words
