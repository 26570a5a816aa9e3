// Decisions with their reasons, what became of orders, and refusals by reason.
import { html } from "../html.js";
import { duration, ms, planLine, time } from "../format.js";
import { change } from "../store.js";

const KINDS = [["", "all"], ["move", "moves"], ["turn", "turns"], ["hold", "holds"], ["fell", "fallbacks"]], SHOWN = 100;
const css = (row) => (row.fallback ? "fell" : row.action);

// Links and domains that called for a decision, each once, with its times if there are several.
function counted(words) {
  const times = new Map();
  words.forEach((word) => times.set(word, (times.get(word) || 0) + 1));
  return [...times].map(([word, count]) => (count > 1 ? `${word} (${count} times)` : word)).join("; ");
}

// A detail in words: a pair of numbers is a link, a list what it holds, `domain` and `domains` are numbers of domains.
function worded(one, names) {
  const name = (k) => names[k] ?? k;
  if (Array.isArray(one)) return one.length === 2 && one.every(Number.isInteger) ? [`${name(one[0])} → ${name(one[1])}`] : one.flatMap((part) => worded(part, names));
  if (one === null || typeof one !== "object") return [String(one)];
  return Object.entries(one).flatMap(([key, value]) => key.startsWith("domain") ? [value].flat().map(name) : key === "link" ? worded(value, names) : [`${key} ${worded(value, names).join(", ")}`]);
}

export const causes = (row, names) => Object.entries(row.reasons || {})
  .map(([name, details]) => { const words = worded(details, names); return words.length ? `${name}: ${counted(words)}` : name; }).join(" · ");

function Row({ row, names, open }) {
  const toggle = () => change({ opened: open ? null : row.number });
  return html`<tr class=${css(row)}>
      <td><button type="button" class="plain" aria-expanded=${String(open)} onClick=${toggle}>${row.number}</button></td><td>${time(row.at)}</td>
      <td class="act">${row.job && html`<b>${row.job}</b> `}${row.action}${row.fallback && " (fallback)"}</td><td>${row.trigger}</td><td class="why">${row.reason}</td></tr>
    ${open && html`<tr class="opened"><td colspan="5"><dl>
      <dt>called for by</dt><dd>${causes(row, names) || row.trigger}</dd>
      <dt>plan</dt><dd>${row.plan ? planLine(row.plan, names) : "the one in force stays"}</dd>
      ${row.fallback && html`<dt>fallback</dt><dd>${row.fallback}</dd>`}
      <dt>expected iteration</dt><dd>${duration(row.predicted_iter_s)}</dd><dt>decided in</dt><dd>${ms(row.latency_s)}</dd></dl></td></tr>`}`;
}

// Orders that the job did not carry out, and fallbacks, counted by their reason.
function Refused({ decisions, events }) {
  const counts = new Map(), add = (kind, reason, at) => {
    const name = `${kind}\n${reason || "no reason given"}`, [count] = counts.get(name) || [0];
    counts.set(name, [count + 1, at]);
  };
  events.filter((one) => one.event === "order_closed" && one.state !== "applied").forEach((one) => add(`order ${one.state}`, one.reason, one.at));
  decisions.filter((one) => one.fallback).forEach((one) => add("fallback", one.fallback, one.at));
  if (!counts.size) return html`<p class="soft small-text">No order was refused, expired or withdrawn, and no decision fell back.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Refused plans by reason"><table><thead><tr><th scope="col">refused</th><th scope="col">reason</th><th scope="col" class="n">times</th><th scope="col">last, UTC</th></tr></thead>
    <tbody>${[...counts].sort((a, b) => b[1][0] - a[1][0]).map(([name, [count, at]]) => html`<tr><td>${name.split("\n")[0]}</td><td class="why">${name.split("\n")[1]}</td><td class="n">${count}</td><td>${time(at)}</td></tr>`)}</tbody></table></div>`;
}

export function Decisions({ state, decisions, events, filter, opened }) {
  const names = state.domains.map((domain) => domain.name), words = filter.words.trim().toLowerCase();
  const fits = (row) => (!filter.kind || css(row) === filter.kind) && (!words || `${row.job || ""} ${row.action} ${row.trigger} ${row.reason}`.toLowerCase().includes(words));
  const found = decisions.filter(fits).reverse(), shown = found.slice(0, SHOWN);
  return html`<div class="filter">
      <label>words <input id="decision-search" type="search" value=${filter.words} onInput=${(event) => change({ filter: { ...filter, words: event.target.value } })} /></label>
      <label>kind <select onInput=${(event) => change({ filter: { ...filter, kind: event.target.value } })}>${KINDS.map(([value, name]) => html`<option value=${value} selected=${filter.kind === value}>${name}</option>`)}</select></label>
      <span role="status">${found.length > shown.length ? `the last ${shown.length} of ${found.length}` : `${found.length} shown`}</span></div>
    <div class="scroll tall-list" tabindex="0" role="region" aria-label="table: decisions"><table id="decision-table">
      <thead><tr><th scope="col">no.</th><th scope="col">UTC</th><th scope="col">action</th><th scope="col">trigger</th><th scope="col">reason</th></tr></thead>
      <tbody>${shown.map((row) => html`<${Row} key=${row.number} row=${row} names=${names} open=${opened === row.number} />`)}</tbody></table></div>
    <h3>Refused plans by reason</h3><${Refused} decisions=${decisions} events=${events} />`;
}
