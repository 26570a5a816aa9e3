// The job that is served, and what happened to it.
import { html } from "../html.js";
import { duration, layersOf, plain, scaled, several, time, usd } from "../format.js";

const WORDS = {
  order_given: (e) => `order ${e.number} given: ${e.reason}`, order_closed: (e) => `order ${e.number} ${e.state}${e.reason ? `: ${e.reason}` : ""}`,
  mode_changed: (e) => `mode ${e.mode}${e.client ? `, by ${e.client}` : ""}${e.reason ? `: ${e.reason}` : ""}`,
  rollback_requested: (e) => `rollback asked for${e.client ? ` by ${e.client}` : ""}${e.reason ? `: ${e.reason}` : ""}`,
  link_failed: (e, names) => `link ${names[e.src]} → ${names[e.dst]} failed`, link_restored: (e, names) => `link ${names[e.src]} → ${names[e.dst]} is back`,
  gpu_failed: (e, names) => `${names[e.domain]} lost ${e.gpus} GPUs, ${e.free} are alive`, gpu_repaired: (e, names) => `${names[e.domain]} has ${e.gpus} GPUs back`,
  clock_jumped: (e) => e.reason, clock_settled: (e) => `the clock is believed again: ${e.reason}`,
  plan_applied: () => "plan applied", job_submitted: () => "submitted", job_started: () => "started", job_preempted: (e) => `stopped ${e.reason}`,
  job_finished: (e) => `ended: ${e.reason}`, message_quarantined: (e) => `a message${e.client ? ` of ${e.client}` : ""} was set aside: ${e.reason}`,
};
const SHOWN = 100;

const DOES = { running: () => "runs its plan", placed: () => "has not said that it runs its plan", waiting: () => "waits", ended: (job) => `ended ${time(job.ended_at)}` };
const where = (job, names) => [...layersOf(job.plan).keys()].map((k) => names[k]).join(", ");

function Line({ job, names }) {
  const { estimate } = job;
  return html`<tr><th scope="row">${job.name}</th><td class="n">${plain(job.priority)}</td><td>${job.model}</td><td>${DOES[job.state](job)}</td><td>${where(job, names)}</td>
    <td class="n">${scaled(job.tokens, "")}${job.tokens_asked ? ` of ${scaled(job.tokens_asked, "")}` : ""}</td><td class="n">${duration(job.mean_step_s)}</td>
    <td class="n">${duration(estimate && estimate.iteration_s)}</td><td class="n">${duration(estimate && estimate.seconds_left)}</td><td class="n">${usd(estimate && estimate.egress_usd_per_hour)}</td>
    <td class="why">${job.state === "ended" ? "" : job.obstacle || (job.decision ? job.decision.reason : "nothing was decided yet")}</td></tr>`;
}

// All jobs of a scenario with several: plans are under “Plan over time”.
function Several({ jobs, names }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="table: jobs"><table><thead><tr><th scope="col">job</th><th scope="col" class="n">priority</th><th scope="col">model</th><th scope="col">state</th><th scope="col">where</th><th scope="col" class="n">tokens</th><th scope="col" class="n">mean step of 100</th><th scope="col" class="n">expected step</th><th scope="col" class="n">left</th><th scope="col" class="n">egress, USD/h</th><th scope="col">why</th></tr></thead>
    <tbody>${jobs.map((job) => html`<${Line} key=${job.name} job=${job} names=${names} />`)}</tbody></table></div>
    <p class="soft small-text">Jobs that the scenario lists and that were submitted; “Queue” submits the others.</p>`;
}

function One({ state }) {
  const { job } = state;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="table: jobs"><table><thead><tr><th scope="col">job</th><th scope="col">state</th><th scope="col" class="n">step</th><th scope="col" class="n">last step</th><th scope="col" class="n">mean of 100</th><th scope="col" class="n">tokens</th><th scope="col">last seen, UTC</th></tr></thead>
      <tbody><tr><th scope="row">${job.model}</th><td>${state.virtual ? "has not reported a plan" : "runs the plan in force"}</td><td class="n">${plain(job.steps)}</td><td class="n">${duration(job.last_step_s)}</td><td class="n">${duration(job.mean_step_s)}</td><td class="n">${scaled(job.tokens, "")}</td><td>${time(job.last_step_at)}</td></tr></tbody></table></div>
    <p class="soft small-text">This service follows one job. Others wait under “Queue”; whether one would fit over several domains is asked under “What if: another job”.</p>`;
}

export function Jobs({ state, events }) {
  const names = state.domains.map((domain) => domain.name), jobs = several(state);
  return html`${state.listed.length ? html`<${Several} jobs=${jobs} names=${names} />` : html`<${One} state=${state} />`}
    <h3>Orders, modes and failures</h3>
    ${events.length ? html`<div class="scroll short" tabindex="0" role="region" aria-label="Orders, modes and failures"><table><thead><tr><th scope="col">UTC</th><th scope="col">what happened</th></tr></thead>
      <tbody>${events.slice(-SHOWN).reverse().map((one) => html`<tr key=${one.seq}><td>${time(one.at)}</td><td class="why">${one.job && html`<b>${one.job}</b> `}${(WORDS[one.event] || (() => one.event))(one, names)}</td></tr>`)}</tbody></table></div>` : html`<p class="soft small-text">None so far.</p>`}`;
}
