// Each domain: its GPUs, price, slowdown, and utilisation with its history.
import { html } from "../html.js";
import { Chart } from "../chart.js";
import { percent, plain, usd } from "../format.js";
import { kept } from "../store.js";

const columns = kept((series, names) => [series.at, ...names.map((name) => series.utilisation[name])]);
const MOST = 8;

let names = [];
const same = (found) => (found.join("\n") === names.join("\n") ? names : (names = found));

export function Domains({ state, accounts, series }) {
  const now = (accounts.measured || accounts.expected || {}).utilisation || {};
  const shown = same(state.domains.map((domain) => domain.name).slice(0, MOST));
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label="table: domains"><table>
      <thead><tr><th scope="col">domain</th><th scope="col" class="n">utilisation</th><th scope="col" class="n">GPUs held</th><th scope="col" class="n">alive</th><th scope="col">GPU</th><th scope="col" class="n">slowdown</th><th scope="col" class="n">USD/GPU h</th></tr></thead>
      <tbody>${state.domains.map((domain) => html`<tr>
        <th scope="row">${domain.name}</th>
        <td class="n"><span class="meter"><meter min="0" max="1" value=${now[domain.name] ?? 0} aria-label=${`utilisation of ${domain.name}`}></meter> ${domain.name in now ? percent(now[domain.name]) : "idle"}</span></td>
        <td class="n">${domain.held}</td><td class=${`n ${domain.alive < domain.gpus ? "alarm" : ""}`}>${domain.alive} of ${domain.gpus}</td><td>${domain.gpu}</td>
        <td class=${`n ${domain.slowdown > 1.1 ? "alarm" : ""}`}>${plain(domain.slowdown)} ×</td><td class="n">${usd(domain.usd_per_gpu_hour)}</td></tr>`)}</tbody></table></div>
    ${series.at.length > 1 && html`<${Chart} label="Utilisation" note="busy share of a step, by domain" unit="%" top=${1} low=${0} scale=${0.01} columns=${columns(series, shown)}
      lines=${shown.map((name, k) => ({ name, colour: `c${k % 8}` }))} />`}`;
}
