// Links: the picture, a table to choose from, and the chosen link with its forecast.
import { html } from "../html.js";
import { Chart } from "../chart.js";
import { ms, plain, rate, usd } from "../format.js";
import { choose, pair } from "../live.js";
import { linkScale } from "../shapes.js";
import { change, kept } from "../store.js";
import { Topology } from "./topology.js";

const AROUND = 3; // the past is shown for so many times the longest horizon, unless all of it is asked for
// Columns: time, samples, forecast, ends of the 80 % and the 95 % interval.
const columns = kept((samples, link, at, whole) => {
  const reach = AROUND * link.horizons[link.horizons.length - 1];
  const past = samples.filter((one) => one.at <= at && (whole || at - one.at < reach)), empty = (rows) => rows.map(() => null);
  const future = link.horizons.map((seconds) => at + seconds);
  const join = (values) => [...empty(past), ...values];
  return [[...past.map((one) => one.at), ...future], [...past.map((one) => one.bandwidth_bps), ...empty(future)],
    ...["forecast_bps", "low80_bps", "high80_bps", "low95_bps", "high95_bps"].map((name) => join(link.rows[name]))];
});
const withHorizons = kept((state, name) => ({ horizons: state.horizons_s, rows: state.links.find((link) => pair(link) === name) }));
const LINES = [
  { name: "measured", colour: "c0" }, { name: "forecast", colour: "c1", dash: [5, 4] }, { name: "80 % from", colour: "c1", hidden: true },
  { name: "80 % to", colour: "c1", hidden: true }, { name: "95 % from", colour: "c1", hidden: true }, { name: "95 % to", colour: "c1", hidden: true },
];

function State({ link }) {
  if (link.dead) return html`<b class="alarm">dead</b>`;
  if (link.alarm) return html`<b title="the link is up; its rate changed in a way that was not forecast">alarm</b>`;
  return link.last ? "well" : "no sample yet";
}

export function Links({ state, link: chosen, samples, whole, alone }) {
  const last = state.horizons_s.length - 1, one = state.links.find((link) => pair(link) === chosen);
  return html`<${Topology} state=${state} chosen=${chosen} />
    <div class="scroll short" tabindex="0" role="region" aria-label="table: links"><table>
      <thead><tr><th scope="col">link</th><th scope="col">state</th><th scope="col" class="n">bandwidth</th><th scope="col" class="n">in ${plain(state.horizons_s[last])} s</th><th scope="col" class="n">80 % interval</th><th scope="col" class="n">latency</th><th scope="col" class="n">USD/GB</th></tr></thead>
      <tbody>${state.links.map((link) => html`<tr key=${pair(link)} class=${pair(link) === chosen ? "this" : ""}>
        <th scope="row"><button class="plain" type="button" aria-pressed=${String(pair(link) === chosen)} onClick=${() => choose(pair(link))}>${link.src} → ${link.dst}</button></th>
        <td><${State} link=${link} /></td><td class="n">${rate(link.last ? link.last.bandwidth_bps : link.forecast_bps[0])}</td><td class="n">${rate(link.forecast_bps[last])}</td>
        <td class="n">${rate(link.low80_bps[last])} – ${rate(link.high80_bps[last])}</td><td class="n">${ms(link.latency_s)}</td><td class="n">${usd(link.usd_per_gb)}</td></tr>`)}</tbody></table></div>
    ${one && html`<p class="acts"><button type="button" class="button" aria-pressed=${String(whole)} onClick=${() => change({ whole: !whole })}>all samples</button>
      <button type="button" class="button" aria-pressed=${String(alone)} onClick=${() => change({ alone: !alone })}>scale of this link alone</button></p>
    <${Chart} key=${chosen} label=${`${one.src} → ${one.dst}`} note="samples, forecast with its 80 % and 95 % intervals" unit="Gbit/s" scale=${1e9} now=${state.at} low=${0} top=${alone ? undefined : linkScale(state.links, samples)}
      columns=${columns(samples, withHorizons(state, chosen), state.at, whole)} lines=${LINES} bands=${[[4, 3, "c1"], [6, 5, "c1"]]} />`}`;
}
