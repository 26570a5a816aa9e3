"""Payloads: one class per event type, every field documented; JSON values only.

Field descriptions are the documentation of the log. All `_ns`, `_bytes` and `tokens` are integers, so that
sums over events are exact; domains are numbered from 0 in the order of the scenario.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Object = dict[str, JsonValue]
Count = Annotated[int, Field(ge=0)]
Links = list[Annotated[list[int], Field(min_length=3, max_length=3)]]
Numbers = list[list[int | float]]
Usd = Annotated[float, Field(ge=0)]


class Payload(BaseModel):
    """Base: strict types, no unknown field, no NaN, no infinity."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class RunStarted(Payload):
    """The inputs of the run: all later events are a function of them."""

    scenario: Object = Field(description="resolved scenario, every default filled in")
    policy: str = Field(description="name of the policy")
    seed: int = Field(description="seed of every generator of the run")
    engine: Literal["kernel", "des"] = Field(description="how iterations are timed")
    window: str = Field(
        description="which part of the trace: train, validate, test, all, or from when to when"
    )
    dataset: str | None = Field(description="WAN data set instead of the scenario's own")
    checkpoint: str | None = Field(description="digest of the policy's checkpoint")
    config_digest: str = Field(description="SHA-256 of the resolved configuration")
    code: Object = Field(description="version of the program and SHA-256 of its sources")
    traces: Object = Field(description="digest of each series that was read from the lake")
    note: str = Field(description="modelling steps between the measurements and the links of this world")
    end_ns: Count = Field(description="length of the simulated time")
    origin_epoch_ns: int = Field(description="UTC time of simulation time 0")
    enforce_deadline: bool = Field(description="whether decisions over the deadline were replaced")
    alarm_rule: Literal["unforecast"] | None = Field(
        default=None,
        description="what counts as an alarm of a link: `unforecast`, a change that the whole forecast did "
        "not expect; absent in older logs, in which it is a filter that was re-initialised",
    )
    span: Object | None = Field(
        default=None,
        description="of a run of a time span: start, end and length of the series, ns",
    )
    branch: Object | None = Field(
        default=None, description="of a what-if: the run and the decision at which it branches off"
    )
    plan: Object | None = Field(default=None, description="the plan that the run was told to keep")
    part_of: str | None = Field(default=None, description="the retraining that this run is an evaluation of")
    live: Object | None = Field(
        default=None,
        description="of a service: `origin_epoch_ns`, UTC of time 0, and `order_s`, how long an order may "
        "wait; the trace is then the past that filters were trained on",
    )


class LinkObserved(Payload):
    """One tick of telemetry: the samples that the filter gets, with noise and delay."""

    sampled_ns: Count = Field(description="when it was measured; the event is when it arrived")
    samples: Numbers = Field(description="[i, j, bandwidth_bps, latency_s] per link; 0 bit/s: dead")


class StateEstimated(Payload):
    """State of the link filter at a decision."""

    links: Numbers = Field(description="[i, j, bandwidth_bps, sd_log, latency_s] per link")


class Triggered(Payload):
    """A decision is due."""

    number: Count = Field(description="number of the decision, from 0")
    trigger: str = Field(description="start, period, change, alarm, failure or repair")
    reasons: dict[str, list[JsonValue]] = Field(description="all triggers that fell together, with details")


class Decided(Payload):
    """The decision of a policy, with its view and candidates; its latency is in `wall`."""

    number: Count = Field(description="number of the decision, from 0")
    action: Literal["hold", "turn", "move"] = Field(
        description="whether the plan changes; turn: only knobs that stop nothing"
    )
    plan: Object | None = Field(description="the new plan; null: hold")
    reason: str = Field(description="why, in words")
    candidates: list[Object] = Field(description="plans compared: plan, score, iter_s, utilisation, usd")
    predicted_iter_s: float | None = Field(description="expected seconds of an iteration under the decision")
    log_probability: float | None = Field(description="of the sampled action, for off-policy estimates")
    mask: list[bool] = Field(description="which actions were legal")
    fallback: str | None = Field(description="why the decision is not the policy's own")
    extra: Object = Field(description="further fields of this policy")
    observation_digest: str = Field(description="SHA-256 of the observation's canonical text")
    observation: Object = Field(description="the view itself, so that the decision can be recomputed alone")


class _Charged(Payload):
    """Cost of the GPUs that a plan holds and of its bytes between domains."""

    egress_usd: Usd = Field(description="bytes between domains times price")
    gpu_ns: Count = Field(description="GPU-nanoseconds held")
    gpu_usd: Usd = Field(description="GPU time held times price")
    energy_j: Usd = Field(description="energy of the GPUs held")


class PlanApplied(_Charged):
    """A plan took effect, at the end of the pause."""

    plan: Object = Field(description="the plan from now on")
    gpus: list[Count] = Field(description="GPUs held per domain")
    started_ns: Count = Field(description="when training stopped for it")
    pause_ns: Count = Field(description="how long training stood still, restart included")
    restart_ns: Count = Field(description="the fixed part of the pause")
    moved_bytes: Links = Field(description="[i, j, bytes] of parameters and optimiser states")


class IterationDone(_Charged):
    """Complete iterations under one plan, batched between other facts."""

    count: Count = Field(description="how many")
    first: Count = Field(description="number of the first one")
    start_ns: Count = Field(description="when the first one began")
    durations: list[list[int]] = Field(description="[count, ns] run-length coded, in order")
    tokens: Count = Field(description="tokens trained")
    stalled_ns: Count = Field(description="time in which a used link was dead")
    compute_ns: list[Count] = Field(description="computing time per domain")
    active_ns: list[Count] = Field(description="wall time per domain while it is in the plan")
    gpu_compute_ns: Count = Field(description="computing time times GPUs")
    wan_bytes: Links = Field(description="[i, j, bytes] between domains")


class TimeLost(_Charged):
    """Time without a complete iteration that was no planned pause."""

    reason: str = Field(description="abandoned, failure, waiting, moving or horizon")
    start_ns: Count = Field(description="when it began")
    lost_ns: Count = Field(description="how long it lasted")
    stalled_ns: Count = Field(description="of which a used link was dead")
    wan_bytes: Links = Field(description="[i, j, bytes] sent for nothing")
    moved_bytes: Links = Field(description="[i, j, bytes] of a move that did not end")
    gpus: list[Count] = Field(default=[], description="GPUs held per domain by the plan that was moved to")
    part_tokens: float = Field(
        default=0.0,
        ge=0,
        description="at the horizon: tokens of the iteration under way, times its share",
    )


class LinkChanged(Payload):
    """A directed link failed or was restored."""

    src: Count = Field(description="source domain")
    dst: Count = Field(description="destination domain")


class GpuFailed(Payload):
    """GPUs of a domain failed; the work since the last checkpoint is lost."""

    domain: Count = Field(description="where")
    gpus: Count = Field(description="how many")
    free: Count = Field(description="GPUs of the domain that remain")
    lost_iterations: Count = Field(description="iterations to do again")
    lost_tokens: Count = Field(description="their tokens")


class GpuRepaired(Payload):
    """GPUs of a domain were repaired."""

    domain: Count = Field(description="where")
    gpus: Count = Field(description="how many")
    free: Count = Field(description="GPUs of the domain that are available now")


class NodeChanged(Payload):
    """An outage of a node of a queue began or is over; jobs that a fault ends have events of their own."""

    node: Count = Field(description="number of the node, from 0 in the order of the header")
    reason: Literal["fault", "drain", "outage over"] = Field(description="a drain lets its jobs end")
    outages: Count = Field(description="outages that the node is in from now on; 0: it is back")


class DomainSlowed(Payload):
    """A domain computes slower than nominal, or no longer so."""

    domain: Count = Field(description="where")
    factor: float = Field(description="computing time over nominal; 1.0: nominal again")


class StateCopied(_Charged):
    """A round of copying ahead of a move ended; training continued meanwhile."""

    round: Count = Field(description="number of the round, from 0")
    start_ns: Count = Field(description="when it began")
    copied_ns: Count = Field(description="how long it took")
    moved_bytes: Links = Field(description="[i, j, bytes] of parameters and optimiser states")


class WorkLost(Payload):
    """One of several jobs fell back to its last checkpoint."""

    reason: str = Field(description="failure or preempted")
    lost_iterations: Count = Field(description="iterations to do again")
    lost_tokens: Count = Field(description="their tokens")


class JobChanged(Payload):
    """A job changed its state; the event's `job` column names it."""

    reason: str = Field(description="why")
    gpus: list[Count] = Field(description="GPUs held per domain after it")
    spec: Object = Field(
        default={},
        description="the job itself, when it is submitted; where it lies, when it starts in a queue; node, "
        "work kept and lost, when a fault of a node ends its run",
    )


class OutOfMemory(Payload):
    """A job needed more memory than its GPUs have, and starts again in a smaller way, if there is one."""

    micro_batch: Count = Field(description="samples of a replica in one pass")
    recompute: str = Field(description="activations that were recomputed: none, selective or full")
    zero: Count = Field(description="ZeRO stage")
    predicted_bytes: Count = Field(description="predicted peak of the fullest GPU")
    needed_bytes: Count = Field(description="what it needed")
    gpu_bytes: Count = Field(description="what it has")


class PowerChanged(Payload):
    """The power of a site changed, as a job started or ended; it holds to the next one, or to the end."""

    meter_mw: Count = Field(description="milliwatts at the meter, conversion and cooling included")


class AccountCharged(Payload):
    """Amounts that an owner of jobs is charged over a run; integers that exceed 64 bits are text."""

    owner: str = Field(description="user, or `idle site` for the time in which no job runs")
    jobs: Count = Field(description="jobs of the owner")
    gpu_ns: str = Field(description="processors x nanoseconds")
    energy_pj: str = Field(description="picojoules at the meter")
    carbon: str | None = Field(description="picojoules x micrograms/kWh; null without an intensity")
    cost: str | None = Field(description="picojoules x microdollars/MWh; null without a price")


class PolicyUpdated(Payload):
    """One update of a policy's weights."""

    stage: str = Field(description="imitation, ppo or another stage of training")
    update: Count = Field(description="number of the update, from 0")
    steps: Count = Field(description="environment steps so far")
    metrics: dict[str, float] = Field(description="loss, return, entropy and so on")


class RetrainingStep(Payload):
    """A retraining has come one step further; the step's own events stand between two of these."""

    step: Literal["due", "collected", "trained", "switched", "interrupted"] = Field(
        description="due: it began, and why; switched: the active checkpoint is another one now"
    )
    details: Object = Field(description="cause and readings, data, checkpoint and parent, what was put right")


class PolicyEvaluated(Payload):
    """A checkpoint was scored on a held-out window."""

    role: Literal["champion", "challenger"] = Field(description="which of the two it scores")
    checkpoint: str = Field(description="digest of the checkpoint")
    window: str = Field(description="on which part of the trace")
    run: str = Field(default="", description="the run that was scored")
    scores: dict[str, float | None] = Field(description="key figures by name")


class PolicyJudged(Payload):
    """The challenger became the champion, or did not."""

    checkpoint: str = Field(description="digest of the challenger")
    champion: str | None = Field(description="digest of the champion before; null: there was none")
    reason: str = Field(description="why, in words")
    interval: list[float] | None = Field(
        description="95 % interval of the paired difference, challenger - champion"
    )


Interval = Annotated[list[float], Field(min_length=3, max_length=3)]


class PoliciesCompared(Payload):
    """A benchmark compared one policy with another, in worlds that differ by their seeds."""

    policy: str = Field(description="the policy that is judged")
    base: str = Field(description="the policy that it is compared with")
    seeds: list[int] = Field(description="of the worlds")
    runs: list[str | None] = Field(description="of the policy, a world each; null: it could not run")
    base_runs: list[str | None] = Field(description="of the other, in the same order")
    worlds: Count = Field(description="how many worlds both ran in")
    wins: Count = Field(description="worlds in which the policy trained more tokens")
    losses: Count = Field(description="worlds in which it trained fewer")
    ties: Count = Field(description="worlds in which it trained as many")
    saved: Interval | None = Field(
        description="[mean, low, high] of 1 - time per token / the other's; 95 % interval over worlds"
    )
    saved_middle: Interval | None = Field(description="the same of the interquartile mean")
    tokens: Interval = Field(
        description="[mean, low, high] of tokens more, in shares of the other's; over worlds and time"
    )
    verdict: Literal["better", "equal", "worse"] = Field(description="whether `tokens` leaves out 0")


class FrontReached(Payload):
    """Share of the reference front of a benchmark that one policy reaches; means over worlds."""

    policy: str = Field(description="name of the policy")
    points: Count = Field(description="how many, in all worlds")
    coverage: float = Field(description="share of the front's points that they reach within 2 %")
    hypervolume: float = Field(description="as a share of the front's")
    exact: bool = Field(description="whether all fixed plans were enumerated for the front")


class RegretMeasured(Payload):
    """Regret of a run of a benchmark against the clairvoyant bound of its world."""

    policy: str = Field(description="name of the policy")
    seed: int = Field(description="of the world")
    level: float | None = Field(description="noise of the world, as in `noise_measured`; null: none added")
    run: str = Field(description="the run")
    regret: float | None = Field(description="share of the bound's tokens not trained; null: it has none")
    exact: bool = Field(description="whether the bound is over all plans, not over candidates")


class NoiseMeasured(Payload):
    """Loss of one policy, or of the bound, to noise that a benchmark added to the links."""

    policy: str = Field(description="name of the policy; `bound`: the clairvoyant bound")
    level: float = Field(description="bandwidths within +- this share of the measured ones")
    worlds: Count = Field(description="how many worlds, each against itself without noise")
    median: float | None = Field(description="relative time per token more; null: one trained nothing")
    worst: float | None = Field(description="the most of all worlds")


class LoadMeasured(Payload):
    """Stability of one policy under jobs that arrive at another rate; shares of 1."""

    policy: str = Field(description="name of the policy")
    load: float = Field(description="arrival rate of jobs over that of the scenario")
    worlds: Count = Field(description="how many worlds")
    stability: Interval = Field(
        description="[mean, low, high] of 1 - share of the jobs' time lost; 95 % interval over worlds"
    )
    worst: float = Field(description="the least stability of all worlds")
    queued: float = Field(description="of the jobs' time, before their first GPUs")
    utilisation: float = Field(description="of all GPUs")


class TelemetryReceived(Payload):
    """A batch of observations that a service has accepted, as it was told; what it refused is listed."""

    key: str = Field(description="idempotency key of the batch: a second batch with it is the same one")
    client: str = Field(description="name of the token that sent it; empty: none was asked for")
    links: Numbers = Field(
        description="[i, j, ns, bandwidth_bps, latency_s] per sample; 0 bit/s: dead, 0 s: not measured"
    )
    steps: Numbers = Field(description="[ns, number, seconds] per step of the job; ns is its end")
    sent: Numbers = Field(description="[number of the step, i, j, bytes, seconds] per send between domains")
    computed: Numbers = Field(description="[ns, domain, seconds] of computing in a step")
    memory: Numbers = Field(description="[number of the step, bytes] of the devices' peak")
    gpus: Links = Field(description="[domain, ns, GPUs alive]")
    slowdowns: Numbers = Field(description="[domain, ns, computing time over nominal]")
    plans: list[Object] = Field(
        description="what the job said of plans: ns, state (running, applied or refused), plan, order, "
        "pause_s, reason, and its name where the scenario has several"
    )
    jobs: list[str] = Field(
        default=[],
        description="of a scenario with several jobs: rows of `steps`, `sent`, `computed` and `memory` end "
        "with the index of their job in this list",
    )
    refused: list[list[int | str]] = Field(description="[item of the batch, reason] of what was not accepted")


class DecisionRequested(Payload):
    """A decision was asked for from outside of the run's own triggers."""

    by: Literal["start", "period", "pull"] = Field(description="the service's clock, or a client")
    client: str = Field(description="name of the token that asked; empty: none")
    job: str = Field(default="", description="the job of several that it was asked for; empty: all")


class ModeChanged(Payload):
    """A service was promoted, demoted or halted."""

    mode: Literal["shadow", "active", "hold"] = Field(
        description="shadow: decisions order nothing; active: they do; hold: none is made"
    )
    client: str = Field(description="name of the token that asked; empty: none")
    reason: str = Field(description="why, in words")


class RollbackRequested(Payload):
    """A service was asked to order the plan before the one in force."""

    client: str = Field(description="name of the token that asked; empty: none")
    reason: str = Field(description="why, in words")
    job: str = Field(default="", description="the job of several that it is for; empty: the only one")


class RenewalRequested(Payload):
    """A service was asked to end this run and to go on in a new one; the end of the run follows."""

    client: str = Field(description="name of the token that asked; empty: the service's clock")
    reason: str = Field(description="why, in words")


class ClockJumped(Payload):
    """The wall clock of a service does not agree with the time that has passed, or with its clients."""

    wall_epoch_ns: int = Field(description="time of the wall clock, nanoseconds since the epoch")
    ahead_s: float = Field(description="seconds that it is ahead of the run, or of the clients")
    reason: str = Field(description="why it is in doubt, in words")


class ClockSettled(ClockJumped):
    """The wall clock of a service is believed again; a renewal follows where the run is beyond it."""

    reason: str = Field(description="why it is believed, in words")


class RunContinued(Payload):
    """A run of a service takes the place of another, and begins with all that was known at its end."""

    after: str = Field(description="the run whose place it takes")
    client: str = Field(description="name of the token that asked for it; empty: the service's clock")
    reason: str = Field(description="why, in words")
    links: Numbers = Field(
        description="[i, j, ns, bandwidth_bps, latency_s] per sample of the last hour, in this run's time"
    )
    gpus: list[Count] = Field(description="GPUs alive by domain")
    jobs: list[Object] = Field(
        description="name, ended, tokens, slowdowns by domain, plan in force (null: none), virtual (nobody "
        "has said that it runs), since_ns (how long it is in force), earlier plans, next_order, accounted_ns "
        "(time of this run from which on its accounts are) of each job, in the order of submission"
    )
    hours: list[list[float]] = Field(
        description="[hour since the epoch, egress_usd, gpu_usd, energy_j, tokens] of the last month"
    )
    months: Object = Field(description="sums of the accounts by month of UTC (`2026-11`)")
    newest_ns: list[list[str | int]] = Field(
        description="[step, ns], [link, i, j, ns], [gpus, domain, ns] or [slowdown, domain, ns] of the "
        "newest observation, in this run's time: older ones are refused"
    )
    answers: list[list[JsonValue]] = Field(
        description="[key, client, accepted, refused] of the last batches, to be known again by their keys"
    )


class JobsChanged(Payload):
    """Jobs were submitted to the queue of a service or cancelled, or the site reported starts and ends; or
    jobs of a scenario with several were submitted or ended."""

    client: str = Field(description="name of the token that told it; empty: none was asked for")
    changes: list[Object] = Field(
        description="kind (submit, cancel, start or end), id and epoch_ns of each; submit: gpus, estimate_s, "
        "user; start: gpus by domain"
    )


class MessageQuarantined(Payload):
    """A message from outside broke what it was to change, and was set aside: the events from `first` to the
    one before this are no part of the run. A restart and an audit pass over them, too."""

    first: Count = Field(description="number of the event of the message; equal to its own: it has none")
    kind: str = Field(description="type of that event")
    client: str = Field(description="name of the token that sent it; empty: none was asked for")
    key: str = Field(description="idempotency key of a batch of telemetry; empty: it is none")
    reason: str = Field(description="what went wrong, in words")


class OrderGiven(Payload):
    """The job is ordered to go to a plan."""

    number: Count = Field(description="number of the order, from 0")
    decision: Count | None = Field(description="number of the decision; null: a rollback")
    plan: Object | None = Field(description="the plan to go to; null: to stop and give all GPUs back")
    reason: str = Field(description="why, in words")


class OrderClosed(Payload):
    """An order does not wait any more."""

    number: Count = Field(description="number of the order")
    state: Literal["applied", "refused", "expired", "withdrawn"] = Field(
        description="what became of it; expired: the job said nothing in time; withdrawn: the mode changed"
    )
    reason: str = Field(description="what the job said, or empty")


class RunFinished(Payload):
    """The end of the run."""

    totals: Object = Field(
        description="sums over the run (`twin.world.totals`); equal to the sums over its events"
    )
