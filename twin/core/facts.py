"""Facts: what happens in the world, in order; the runner turns them into logged events.

Payload fields, by type (K domains; `[i, j, n]` is a directed link and a number; all `_ns`, `_bytes` and
`tokens` are integers, so sums over facts equal the totals exactly; USD and J are summed in the order of the
facts):

link_observed    sampled_ns, samples [[i, j, bandwidth_bps, latency_s], ...] (0 bit/s: the link was dead)
state_estimated  links [[i, j, bandwidth_bps, sd_log, latency_s], ...]: the filtered present at a decision
triggered        number, trigger, reasons {trigger: [detail, ...]} (of all requests that became this decision)
plan_applied     plan, gpus (K,), started_ns, pause_ns, restart_ns, moved_bytes [[i, j, n], ...], egress_usd,
                 gpu_ns, gpu_usd, energy_j; at the end of the pause
iteration_done   count, first (number of the first), start_ns, durations [[count, ns], ...], tokens,
                 stalled_ns, compute_ns (K,), active_ns (K,) (wall time while in the plan), gpu_compute_ns
                 (compute times GPUs), wan_bytes [[i, j, n], ...], egress_usd, gpu_ns, gpu_usd, energy_j
time_lost        reason (abandoned: a stalled iteration given up for a move; failure; waiting: no plan can
                 run; moving: the run ended in a move; horizon: the run ended in an iteration), start_ns,
                 lost_ns, stalled_ns, wan_bytes, moved_bytes, egress_usd, gpu_ns, gpu_usd, energy_j;
                 moving: gpus (K,) of the plan to come
state_copied     round, start_ns, copied_ns, moved_bytes, egress_usd, gpu_ns, gpu_usd, energy_j (0): ahead
                 of a move, while training went on
work_lost        reason, lost_iterations, lost_tokens: of one job of several, since its last checkpoint
job_submitted, job_started, job_preempted, job_finished   reason, gpus (K,) held after it, spec
link_failed, link_restored   src, dst
gpu_failed       domain, gpus, free, lost_iterations, lost_tokens (since the last checkpoint, done again)
gpu_repaired     domain, gpus, free
domain_slowed    domain, factor (1.0: nominal again)
run_finished     totals: `twin.world.totals.Totals`

The iterations, pauses and losses fill the run to the nanosecond: durations + pause_ns + lost_ns = horizon. Of
several jobs each fills the time from its submission to its end; `lost_*` of `gpu_failed` are 0 then.
GPU time is charged while a plan holds its GPUs: in iterations, moves (the new plan's) and losses, not while
the job waits.
"""

from dataclasses import dataclass, field
from typing import Any

from twin.core.view import View


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that happened. `payload` holds JSON values only, listed by type at the top of this file.

    `job`: the job concerned; empty where it concerns all, and in a world without a job list.
    """

    sim_ns: int
    type: str
    payload: dict[str, Any] = field(default_factory=dict)
    job: str = ""


@dataclass(frozen=True, slots=True)
class Trigger(Fact):
    """A decision is due: the runner calls `World.apply` before the world goes on."""

    view: View | None = None
