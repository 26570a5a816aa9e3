// Cost and egress: now, this month, and over the last day.
import { html } from "../html.js";
import { Chart } from "../chart.js";
import { bytes, duration, percent, plain, scaled, usd } from "../format.js";
import { kept } from "../store.js";

const card = (name, value, note) => html`<div class="card"><span>${name}</span><b>${value}</b><small>${note}</small></div>`;
const columns = kept((series) => [series.at, series.egress_usd_per_hour, series.gpu_usd_per_hour]);
const steps = kept((series) => [series.at, series.step_s]);

// The total price of tokens with its parts; MFU of the plan in force, or of the run.
function perBillion(figures, whole) {
  const each = figures && figures.usd_per_1e9_tokens, mfu = whole && whole.mfu, unknown = (whole && whole.gpus_without_price) || [];
  const parts = each ? `GPUs ${usd(each.rent)}, egress ${usd(each.egress)}` : "";
  const rest = [parts, mfu == null ? "" : `MFU ${percent(mfu)}`, unknown.length ? `no price known of ${unknown.join(", ")}` : ""];
  return card("All, per 10⁹ tokens", each && each.total != null ? `${unknown.length ? "≥ " : ""}${usd(each.total)}` : "–", rest.filter(Boolean).join("; "));
}

export function Costs({ accounts, series }) {
  const { measured, expected, month, run } = accounts, now = measured || expected;
  const source = measured ? "measured, last 10 minutes" : expected ? "expected of the plan, links as now" : "no plan is in force";
  const sums = month || run, since = month ? month.month : "no steps yet";
  return html`
    <h3>Now <em class="tag">${measured ? "measured" : "expected"}</em></h3>
    <div class="cards">
      ${card("Egress cost", now ? `${usd(now.egress_usd_per_hour)}/h` : "–", source)}
      ${card("GPU cost", now ? `${usd(now.gpu_usd_per_hour)}/h` : "–", "list prices of the GPUs held")}
      ${perBillion(now, expected)}
      ${card("Egress", now ? scaled(8 * now.egress_bytes_per_s, "bit/s") : "–", "between domains, mean")}
      ${card("Tokens", now ? `${scaled(now.tokens_per_s, "/s")}` : "–", `step ${duration(now && now.iteration_s)}`)}
    </div>
    <h3>This month <em class="tag">${since}</em></h3>
    <div class="cards">
      ${card("Egress cost", usd(sums.egress_usd), "of steps and moves, list prices")}
      ${card("GPU cost", usd(sums.gpu_usd), "held, pauses included")}
      ${perBillion(sums, accounts)}
      ${card("Egress", bytes(sums.egress_bytes), `${plain(sums.iterations)} steps`)}
      ${card("Tokens", scaled(sums.tokens, ""), `${scaled(run.tokens, "")} in the whole run`)}
    </div>
    ${sums.links.length > 0 && html`<details><summary>Egress of this month by link</summary><div class="scroll" tabindex="0" role="region" aria-label="Egress by link"><table>
      <thead><tr><th scope="col">link</th><th scope="col" class="n">sent</th><th scope="col" class="n">cost</th></tr></thead>
      <tbody>${sums.links.map((link) => html`<tr><th scope="row">${link.src} → ${link.dst}</th><td class="n">${bytes(link.bytes)}</td><td class="n">${usd(link.usd)}</td></tr>`)}</tbody></table></div></details>`}
    ${series.at.length > 1 && html`<div class="pair">
      <${Chart} label="Cost" unit="USD/h" columns=${columns(series)} lines=${[{ name: "egress", colour: "c1" }, { name: "GPUs", colour: "c0" }]} />
      <${Chart} label="Step time" unit="s" columns=${steps(series)} lines=${[{ name: "step", colour: "c0" }]} /></div>`}
    ${series.at.length <= 1 && html`<p class="soft small-text">Charts come when the job has reported steps for two minutes.</p>`}`;
}
