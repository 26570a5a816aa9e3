// The job that is served, and what happened to it.
import { html } from "../html.js";
import { duration, plain, scaled, time } from "../format.js";

const WORDS = {
  order_given: (e) => `order ${e.number} given: ${e.reason}`, order_closed: (e) => `order ${e.number} ${e.state}${e.reason ? `: ${e.reason}` : ""}`,
  mode_changed: (e) => `mode ${e.mode}${e.client ? `, by ${e.client}` : ""}${e.reason ? `: ${e.reason}` : ""}`,
  rollback_requested: (e) => `rollback asked for${e.client ? ` by ${e.client}` : ""}${e.reason ? `: ${e.reason}` : ""}`,
  link_failed: (e, names) => `link ${names[e.src]} → ${names[e.dst]} failed`, link_restored: (e, names) => `link ${names[e.src]} → ${names[e.dst]} is back`,
  gpu_failed: (e, names) => `${names[e.domain]} lost ${e.gpus} GPUs, ${e.free} are alive`, gpu_repaired: (e, names) => `${names[e.domain]} has ${e.gpus} GPUs back`,
  plan_applied: () => "plan applied",
};
const SHOWN = 100;

export function Jobs({ state, events }) {
  const { job } = state, names = state.domains.map((domain) => domain.name);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="table: jobs"><table><thead><tr><th scope="col">job</th><th scope="col">state</th><th scope="col" class="n">step</th><th scope="col" class="n">last step</th><th scope="col" class="n">mean of 100</th><th scope="col" class="n">tokens</th><th scope="col">last seen, UTC</th></tr></thead>
      <tbody><tr><th scope="row">${job.model}</th><td>${state.virtual ? "has not reported a plan" : "runs the plan in force"}</td><td class="n">${plain(job.steps)}</td><td class="n">${duration(job.last_step_s)}</td><td class="n">${duration(job.mean_step_s)}</td><td class="n">${scaled(job.tokens, "")}</td><td>${time(job.last_step_at)}</td></tr></tbody></table></div>
    <p class="soft small-text">This service follows one job. Others wait under “Queue”; whether one would fit over several domains is asked under “What if: another job”.</p>
    <h3>Orders, modes and failures</h3>
    ${events.length ? html`<div class="scroll short" tabindex="0" role="region" aria-label="Orders, modes and failures"><table><thead><tr><th scope="col">UTC</th><th scope="col">what happened</th></tr></thead>
      <tbody>${events.slice(-SHOWN).reverse().map((one) => html`<tr key=${one.seq}><td>${time(one.at)}</td><td class="why">${(WORDS[one.event] || (() => one.event))(one, names)}</td></tr>`)}</tbody></table></div>` : html`<p class="soft small-text">None so far.</p>`}`;
}
