// Forms that change nothing: a dry run of the policy, and whether another job would fit.
import { html } from "../html.js";
import { bytes, duration, percent, plain, planLine, scaled, several, usd } from "../format.js";
import { pair } from "../live.js";
import { change } from "../store.js";
import { Answer, Button, send } from "./forms.js";

const number = (text) => (text === "" || text === null ? null : Number(text));

function dryRun(event, supposed) {
  event.preventDefault();
  const gpus = {};
  for (const [name, value] of new FormData(event.target)) if (name.startsWith("gpus:") && value !== "") gpus[name.slice(5)] = Number(value);
  const links = supposed.filter((one) => one.gbps !== "").map((one) => { const [src, dst] = one.link.split(">"); return { src, dst, bandwidth_bps: Number(one.gbps) * 1e9 }; });
  const job = new FormData(event.target).get("job");
  send("dry-run", "v1/dry-run", { links, gpus, ...(job ? { job } : {}) });
}

function Supposed({ supposed, links }) {
  const set = (k, part) => change({ supposed: supposed.map((one, at) => (at === k ? { ...one, ...part } : one)) });
  return html`${supposed.map((one, k) => html`<div class="fields" key=${k}>
      <label>link <select value=${one.link} onInput=${(event) => set(k, { link: event.target.value })}>${links.map((link) => html`<option value=${pair(link)} selected=${pair(link) === one.link}>${link.src} → ${link.dst}</option>`)}</select></label>
      <label>has, Gbit/s <input type="number" min="0" max="1000000" step="any" value=${one.gbps} onInput=${(event) => set(k, { gbps: event.target.value })} /></label>
      <button type="button" class="button" aria-label=${`remove link ${k + 1}`} onClick=${() => change({ supposed: supposed.filter((_, at) => at !== k) })}>remove</button></div>`)}
    <p><button type="button" class="button" onClick=${() => change({ supposed: [...supposed, { link: pair(links[0]), gbps: "" }] })}>suppose a link</button></p>`;
}

function Candidates({ rows, names }) {
  if (!rows.length) return null;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Plans that were compared"><table><thead><tr><th scope="col">compared</th><th scope="col" class="n">iteration</th><th scope="col" class="n">utilisation</th><th scope="col" class="n">egress</th></tr></thead>
    <tbody>${rows.map((one) => html`<tr><td class="why">${planLine(one.plan, names)}</td><td class="n">${duration(one.iter_s)}</td><td class="n">${percent(one.utilisation)}</td><td class="n">${usd(one.usd)}</td></tr>`)}</tbody></table></div>`;
}

export function DryRun({ state, me, supposed, asking, answers }) {
  const names = state.domains.map((domain) => domain.name), jobs = several(state).filter((job) => job.state !== "ended");
  return html`<form onSubmit=${(event) => dryRun(event, supposed)}>
    <p>What would the policy do now, and why does it not? Leave fields empty for links and GPUs as they are; suppose others for a what-if. Nothing is changed or logged.</p>
    ${jobs.length > 0 && html`<p><label>job <select name="job">${jobs.map((job) => html`<option>${job.name}</option>`)}</select></label></p>`}
    ${state.links.length > 0 && html`<${Supposed} supposed=${supposed} links=${state.links} />`}
    <div class="fields">${state.domains.map((domain) => html`<label key=${domain.name}>GPUs of ${domain.name} <input type="number" name=${`gpus:${domain.name}`} min="0" max=${domain.gpus} step="1" placeholder=${domain.alive} /></label>`)}</div>
    <p><${Button} type="submit" kind="main" role="read" me=${me} disabled=${asking !== null}>Dry run<//></p></form>
    <${Answer} name="dry-run" asking=${asking} answers=${answers}>${(found) => html`
      <p class="sentence"><b>${found.action}</b>: ${found.reason}</p>
      <dl><dt>plan</dt><dd>${found.plan ? planLine(found.plan, names) : "the one in force stays"}</dd><dt>expected iteration</dt><dd>${duration(found.predicted_iter_s)}</dd>
      <dt>why not now</dt><dd><ul>${found.why_not_now.map((why) => html`<li>${why}</li>`)}</ul></dd></dl>
      <${Candidates} rows=${found.candidates} names=${names} />`}<//>`;
}

function admission(event) {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.target)), job = {};
  if (given.batch) job.global_batch = Number(given.batch);
  send("admission", "v1/admission", { model: given.model, job, tokens: number(given.tokens), present_job_tokens_left: number(given.left) });
}

function Fit({ title, fit, names }) {
  if (!fit) return null;
  return html`<h3>${title}</h3><dl><dt>plan</dt><dd>${planLine(fit.plan, names)}</dd><dt>speed</dt><dd>${scaled(fit.tokens_per_s, "tokens/s")}, ${duration(fit.iteration_s)} a step</dd>
    <dt>egress</dt><dd>${bytes(fit.egress_bytes_per_s)}/s, ${usd(fit.egress_usd_per_hour)}/h</dd><dt>GPUs</dt><dd>${usd(fit.gpu_usd_per_hour)}/h</dd>
    <dt>per 10⁹ tokens</dt><dd>${usd(fit.cost.usd_per_1e9_tokens.total)} in all${fit.cost.gpus_without_price.length ? `, without GPUs of ${fit.cost.gpus_without_price.join(", ")}` : ""}, MFU ${percent(fit.cost.mfu)}</dd>
    ${fit.whole && html`<dt>the whole job</dt><dd>${duration(fit.whole.seconds)}, ${bytes(fit.whole.egress_bytes)} and ${usd(fit.whole.egress_usd)} of egress, ${usd(fit.whole.gpu_usd)} of GPUs</dd>`}</dl>`;
}

export function Admission({ state, me, asking, answers }) {
  const names = state.domains.map((domain) => domain.name);
  return html`<form onSubmit=${admission}>
    <p>When could a job that is not submitted yet start, how fast would it be, what would it send?</p>
    <div class="fields">
      <label>model <input name="model" required maxlength="200" defaultValue=${state.job.model} spellcheck=${false} /></label>
      <label>sequences a batch <input name="batch" type="number" min="1" max="1000000" step="1" placeholder="as the scenario" /></label>
      <label>tokens to train <input name="tokens" type="number" min="1" step="1" placeholder="not said" /></label>
      <label>tokens that the present job has left <input name="left" type="number" min="1" step="1" placeholder="not said" /></label></div>
    <p><${Button} type="submit" kind="main" role="read" me=${me} disabled=${asking !== null}>Estimate<//></p></form>
    <${Answer} name="admission" asking=${asking} answers=${answers}>${(found) => html`
      <p class="sentence">${found.model}: ${found.starts_in_s === null ? "no start can be given" : found.starts_in_s === 0 ? "could start now" : `could start in ${duration(found.starts_in_s)}`}; ${found.reason}.</p>
      <p class="soft small-text">Free GPUs: ${Object.entries(found.free_gpus).map(([name, count]) => `${name} ${plain(count)}`).join(", ")}.</p>
      <${Fit} title="Beside the present job" fit=${found.now} names=${names} /><${Fit} title="Alone in the cluster" fit=${found.alone} names=${names} />`}<//>`;
}
