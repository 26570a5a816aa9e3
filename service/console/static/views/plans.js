// The plan in force, and the plans over time: layers of each domain, one bar a plan.
import { html } from "../html.js";
import { duration, layersOf, planLine, several, time } from "../format.js";

const ROWS = 12;

function Lanes({ plans, domains, now }) {
  const first = Math.min(plans[0].at, now - 60), whole = now - first;
  const spans = plans.map((one, k) => ({ ...one, end: k + 1 < plans.length ? plans[k + 1].at : now, layers: layersOf(one.plan) }));
  const most = Math.max(1, ...spans.flatMap((span) => [...span.layers.values()]));
  return html`<div class="chart"><figure><figcaption><i>layers, ${time(first)} to ${time(now)} UTC</i><strong>Layers of each domain</strong></figcaption>
    ${domains.map((name, k) => html`<div class="plan-lane"><span>${name}</span><svg viewBox="0 0 1000 26" preserveAspectRatio="none" role="img" aria-label=${`${name}: ${spans.map((span) => `${span.layers.get(k) || 0} layers from ${time(span.at)}`).slice(-ROWS).join(", ")}`}>
      <rect class="ground" width="1000" height="26" />${spans.filter((span) => span.layers.get(k)).map((span) => {
        const height = 4 + (22 * span.layers.get(k)) / most;
        return html`<rect class=${`f-c${k % 8} ${span.virtual ? "virtual" : ""}`} x=${((1000 * (span.at - first)) / whole).toFixed(2)} width=${Math.max(2, (1000 * (span.end - span.at)) / whole - 1).toFixed(2)} y=${(26 - height).toFixed(1)} height=${height.toFixed(1)}><title>${span.layers.get(k)} layers from ${time(span.at)} to ${time(span.end)}</title></rect>`;
      })}</svg><b>${(spans[spans.length - 1].layers.get(k)) || 0}</b></div>`)}</figure></div>`;
}

function Each({ jobs, names, plans }) {
  const changes = plans.slice(-ROWS * 8);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Plan of each job"><table><thead><tr><th scope="col">job</th><th scope="col">plan</th></tr></thead>
      <tbody>${jobs.map((job) => html`<tr key=${job.name}><th scope="row">${job.name}</th><td class="why">${job.plan ? planLine(job.plan, names) : "none"}${job.plan && job.virtual && html` <em class="tag">virtual: the job has not said that it runs it</em>`}</td></tr>`)}</tbody></table></div>
    ${changes.length > 0 && html`<details><summary>Plans over time, in words (${changes.length})</summary><div class="scroll short" tabindex="0" role="region" aria-label="Plans over time"><table>
      <thead><tr><th scope="col">from, UTC</th><th scope="col">job</th><th scope="col">plan</th></tr></thead>
      <tbody>${changes.map((one) => html`<tr><td>${time(one.at)}</td><td>${one.job}</td><td class="why">${planLine(one.plan, names)}${one.virtual && html` <em class="tag">virtual</em>`}</td></tr>`).reverse()}</tbody></table></div></details>`}`;
}

export function Plans({ state, series }) {
  if (state.listed.length) return html`<${Each} jobs=${several(state)} names=${state.domains.map((domain) => domain.name)} plans=${series.plans} />`;
  const names = state.domains.map((domain) => domain.name), { plans } = series, { plan } = state;
  if (!plan) return html`<p class="soft">No plan is in force yet.</p>`;
  return html`<p class="sentence">${planLine(plan, names)} ${state.virtual && html`<em class="tag">virtual: the job has not said that it runs it</em>`}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Stages of the plan"><table>
      <thead><tr><th scope="col">stage</th><th scope="col">domain</th><th scope="col" class="n">layers</th><th scope="col" class="n">tensor parallel</th><th scope="col" class="n">pipeline in it</th><th scope="col">GPUs</th></tr></thead>
      <tbody>${plan.shares.map((share, k) => html`<tr><td>${k + 1}</td><th scope="row">${names[share.domain]}</th><td class="n">${share.layers}</td><td class="n">${share.tp}</td><td class="n">${share.pp}</td><td>${share.gpus.join(", ")}</td></tr>`)}</tbody></table></div>
    ${plans.length > 0 && html`<${Lanes} plans=${plans} domains=${names} now=${state.at} />
    <details><summary>Plans over time, in words (${plans.length})</summary><div class="scroll short" tabindex="0" role="region" aria-label="Plans over time"><table>
      <thead><tr><th scope="col">from, UTC</th><th scope="col">for</th><th scope="col">plan</th></tr></thead>
      <tbody>${plans.map((one, k) => html`<tr><td>${time(one.at)}</td><td>${duration((k + 1 < plans.length ? plans[k + 1].at : state.at) - one.at)}</td><td class="why">${planLine(one.plan, names)}${one.virtual && html` <em class="tag">virtual</em>`}</td></tr>`).reverse()}</tbody></table></div></details>`}`;
}
