"""Gavel: shares of time on GPUs of several models, realised in rounds (Narayanan et al., OSDI 2020).

The policy is the paper's heterogeneity-aware max-min fairness (LAS, section 4.1), by `fair_shares.py`, solved
anew when jobs come or end. Rounds last 6 minutes (section 5): at each, pairs of a job and a GPU model go by
share over rounds received on that model since the shares were found, and a pair is taken while its GPUs are
free, each job once. A job lies on GPUs of one model. Without `NodeKinds` all GPUs are alike, and jobs take
turns.

Left open, or not here: ties, which go to the job that is furthest behind its shares since it came, then to
the larger share, then by submission; a round is not cut short, but GPUs that become free in it, and GPUs left
over at its begin, go at once to waiting jobs, in order of submission, each on its fastest model with room. A
job larger than all nodes of each model has no share; it lies on nodes of several when they are left over.
All jobs weigh the same, jobs never share a GPU, and speeds are known (the paper estimates those that were not
measured). Other objectives of the paper are not here.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from ingest.core.units import NS_PER_S
from policy.sharing.fair_shares import fair_shares
from policy.sharing.model_places import ModelPlaces
from twin.queue.jobs import Float, Int
from twin.sharing.changes import PPM
from twin.sharing.kinds import NodeKinds
from twin.sharing.view import NOWHERE, Allocation, SharingView

ROUND_NS = 360 * NS_PER_S
LEAST_SHARE = 1e-6
"""A smaller share is rounding of the solver."""


@dataclass
class GavelRounds:
    """Shares of all jobs, and the time that each has had on each model; (all jobs, models) in every array.

    aware: False for the paper's baseline, shares by GPU time alone as if all models were as fast.
    """

    aware: bool = True
    kinds: NodeKinds | None = None
    share: Float = field(default_factory=lambda: np.zeros((0, 0)))
    had_ns: Float = field(default_factory=lambda: np.zeros((0, 0)))
    behind_ns: Float = field(default_factory=lambda: np.zeros((0, 0)))
    on: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    solved: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    last_ns: int = 0
    round_ns: int = 0

    def decide(self, view: SharingView) -> Allocation:
        """Returns the pairs of this round; asks again at its end."""
        kinds = self._begin(view)
        self._count(view.now_ns)
        begins = view.now_ns >= self.round_ns
        changed = not np.array_equal(self.solved, view.job)
        if changed and (begins or view.arrived or len(view.ended_served_ns)):
            self._solve(view, kinds)
        if begins:
            self.round_ns = view.now_ns + ROUND_NS
        places = ModelPlaces(view, kinds.of_node)
        left = self._round(view, places) if begins else self._kept(view, places)
        self._fill(view, kinds, places, left)
        self.on[view.job] = NOWHERE
        for row in np.flatnonzero(places.gpus).tolist():
            node = places.node[row] if places.node[row] >= 0 else np.argmax(places.whole == row)
            self.on[view.job[row]] = kinds.of_node[node]
        turns = len(kinds.names) > 1 or bool((places.gpus == 0).any())
        return places.allocation(self.round_ns if turns and places.gpus.any() else None)

    def _begin(self, view: SharingView) -> NodeKinds:
        if self.kinds is None:
            jobs = len(view.facts.asked)
            self.kinds = view.facts.kinds or NodeKinds.alike(jobs, len(view.free))
            if not self.aware:
                self.kinds = replace(self.kinds, speed=np.full_like(self.kinds.speed, PPM))
            shape = (jobs, len(self.kinds.names))
            self.share, self.had_ns, self.behind_ns = (np.zeros(shape) for _ in range(3))
            self.on = np.full(jobs, NOWHERE, np.int64)
        return self.kinds

    def _count(self, now_ns: int) -> None:
        """Adds the time since the last event to what jobs have had, and to what they should have had."""
        passed = now_ns - self.last_ns
        ran = np.flatnonzero(self.on >= 0)
        self.had_ns[ran, self.on[ran]] += passed
        self.behind_ns[self.solved] += self.share[self.solved] * passed
        self.behind_ns[ran, self.on[ran]] -= passed
        self.last_ns = now_ns

    def _solve(self, view: SharingView, kinds: NodeKinds) -> None:
        free = np.bincount(kinds.of_node, view.free, len(kinds.names)).astype(np.int64)
        self.solved = view.job.copy()
        self.share[view.job] = fair_shares(kinds.speed[view.job] / PPM, view.asked, free)
        self.had_ns[:] = 0.0

    def _round(self, view: SharingView, places: ModelPlaces) -> list[int]:
        """Gives GPUs to pairs by share over what was had; returns the rows that got none."""
        chosen = self._pairs(view, places)
        stays = [row for row, model in chosen.items() if places.model_now(row) == model and places.keep(row)]
        moves = sorted(set(chosen) - set(stays), key=lambda row: (-int(view.asked[row]), row))
        placed = {*stays, *(row for row in moves if places.put(row, chosen[row]))}
        return [row for row in range(len(view)) if row not in placed]

    def _pairs(self, view: SharingView, places: ModelPlaces) -> dict[int, int]:
        """Returns the model of each row that has one in this round, by numbers of free GPUs."""
        share, had = self.share[view.job], self.had_ns[view.job] / ROUND_NS
        priority = np.where(had > 0, share / np.where(had > 0, had, 1.0), np.inf)
        rows, models = np.nonzero(share > LEAST_SHARE)
        keys = (priority[rows, models], self.behind_ns[view.job][rows, models], share[rows, models])
        order = np.lexsort((models, rows, *(-key for key in reversed(keys))))
        free = np.bincount(places.of_node, view.free, share.shape[1])
        found = dict[int, int]()
        for row, model in zip(rows[order].tolist(), models[order].tolist(), strict=True):
            if row not in found and view.asked[row] <= free[model]:
                found[row] = model
                free[model] -= view.asked[row]
        return found

    def _kept(self, view: SharingView, places: ModelPlaces) -> list[int]:
        """Leaves all running jobs where they are within a round; returns the others."""
        return [row for row in range(len(view)) if not places.keep(row)]

    def _fill(self, view: SharingView, kinds: NodeKinds, places: ModelPlaces, left: list[int]) -> None:
        """Gives GPUs that are left over to these rows, each on its fastest model with room."""
        speed = kinds.speed[view.job]
        gpus = np.bincount(kinds.of_node, view.sizes, len(kinds.names))
        for row in left:
            models = [one for one in np.argsort(-speed[row], kind="stable") if gpus[one] >= view.asked[row]]
            if not places.keep(row):
                any(places.put(row, int(model)) for model in models or [NOWHERE])
