"""Input of the networks as tensors; `policy.hippo.tables.features` computes it."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

NODE = 11
"""utilisation, share of the room used, share of the layers, position, slowdown, log free GPUs, share of all
GPUs, room, pace, log node size, price."""
EDGE = 15
"""log bandwidth, dead, latency, price, forecast at three horizons, deviation now and at the last horizon,
used by the plan, load; of the past: long-run mean relative to now, spread, share of outages, mean of this
hour of the day relative to the long run."""
GLOBAL = 17
"""has a plan, time since the move, time of the plan now and later, restart, K, N, load, weights (3), trigger
(6)."""
CHOICE = 9
"""log tp, log pp, GPUs used, log pace, pp per micro-batch (constant: `PlanningTables.choice_table`); share of
the layers, layers per stage, stages behind, in use."""
KNOB = 8
"""log dp, log micro-batch, log m, current, GPUs used, room, compute time over the best knob's (all, half)."""


@dataclass(frozen=True, eq=False)
class Observation:
    """B situations of one cluster and job: K domains, N layers, C knobs."""

    nodes: Tensor  # (B, K, NODE)
    edges: Tensor  # (B, K, K, EDGE), [b, i, j] = link i -> j
    globals: Tensor  # (B, GLOBAL)
    knobs: Tensor  # (B, C, KNOB)
    knob_mask: Tensor  # (B, C) bool: the model fits under this knob
    may_hold: Tensor  # (B,) bool
    begin: Tensor  # (B, K) first layer of the domain's share in the current plan, -1 unused
    end: Tensor  # (B, K) one after its last layer, -1 unused
    pace: Tensor  # (B, K) seconds per layer over the mean domain's
    current: Tensor  # (B, K) index of the domain's current inner configuration, -1 none
    current_knob: Tensor  # (B,) index of the current knob, -1 none

    @classmethod
    def blank(cls, k: int, knob_mask: Tensor) -> "Observation":
        """Returns one situation of `k` domains with all features 0; `knob_mask` (C,)."""
        none, knobs = torch.full((1, k), -1), len(knob_mask)
        return cls(
            nodes=torch.zeros(1, k, NODE),
            edges=torch.zeros(1, k, k, EDGE),
            globals=torch.zeros(1, GLOBAL),
            knobs=torch.zeros(1, knobs, KNOB),
            knob_mask=knob_mask[None],
            may_hold=torch.zeros(1, dtype=torch.bool),
            begin=none,
            end=none,
            pace=torch.ones(1, k),
            current=none,
            current_knob=none[:, 0],
        )

    def __len__(self) -> int:
        return len(self.nodes)

    def take(self, index: Tensor) -> "Observation":
        """Returns the situations `index` (R,)."""
        return Observation(*(getattr(self, field.name).index_select(0, index) for field in fields(self)))


def stack(parts: list[Observation]) -> Observation:
    """Concatenates batches."""
    names = [field.name for field in fields(Observation)]
    return Observation(*(torch.cat([getattr(part, name) for part in parts]) for name in names))
