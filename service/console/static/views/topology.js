// The picture of `twin report`: sites around an ellipse, both directions of a link apart, coloured by their state.
import { html } from "../html.js";
import { plansOf, rate } from "../format.js";
import { pair } from "../live.js";

const WIDTH = 1000, HEIGHT = 520, RADII = [385, 165], GAP = 26, BEND = 0.1, MOST = 16;

function places(count) {
  const turn = count < 4 ? -Math.PI / 2 : -Math.PI / 2 - Math.PI / count;
  return Array.from({ length: count }, (_, k) => turn + (2 * Math.PI * k) / count).map((a) => [WIDTH / 2 + RADII[0] * Math.cos(a), HEIGHT / 2 + RADII[1] * Math.sin(a)]);
}

function curve([ax, ay], [bx, by]) {
  const dx = bx - ax, dy = by - ay, gap = GAP / Math.hypot(dx, dy), mx = (ax + bx) / 2 + BEND * dy, my = (ay + by) / 2 - BEND * dx;
  const on = (t) => [[ax, mx, bx], [ay, my, by]].map(([a, m, b]) => ((1 - t) ** 2 * a + 2 * (1 - t) * t * m + t * t * b).toFixed(1)).join(" ");
  return `M${on(gap)}Q${mx.toFixed(1)} ${my.toFixed(1)} ${on(1 - gap)}`;
}

// CSS position of a label: outside the ellipse, within the picture.
function labelled([x, y], crowd) {
  const above = y <= HEIGHT / 2, share = x / WIDTH, percent = (value) => `${(100 * value).toFixed(1)}%`;
  const style = above ? { bottom: percent(1 - (y - 20) / HEIGHT) } : { top: percent((y + 20) / HEIGHT) };
  if (share < 0.35) return { ...style, left: percent(Math.max(0, share - 0.1)), textAlign: "left", "--crowd": crowd };
  if (share > 0.65) return { ...style, right: percent(Math.max(0, 0.9 - share)), textAlign: "right", "--crowd": crowd };
  return { ...style, left: percent(share), transform: "translateX(-50%)", textAlign: "center", "--crowd": crowd };
}

export const CLASSES = [["u3", "dead"], ["u2", "in alarm, or under half of its forecast"], ["u1", "carries a plan"], ["u0", "not used by a plan"]];
const crossed = (plans) => new Set(plans.flatMap((plan) => plan.shares.slice(1).flatMap((share, k) => [`${plan.shares[k].domain}>${share.domain}`, `${share.domain}>${plan.shares[k].domain}`])));

// The class of a link, by what is worst about it.
export function classOf(link, index, used) {
  const seen = link.last ? link.last.bandwidth_bps : link.forecast_bps[0];
  if (link.dead) return "u3";
  if (link.alarm || seen < 0.5 * link.forecast_bps[link.forecast_bps.length - 1]) return "u2";
  return used.has(`${index.get(link.src)}>${index.get(link.dst)}`) ? "u1" : "u0";
}

export function Topology({ state, chosen }) {
  const { domains, links } = state, plans = plansOf(state), shown = domains.slice(0, MOST), at = places(shown.length), used = crossed(plans);
  const index = new Map(shown.map((domain, k) => [domain.name, k])), held = new Map();
  plans.forEach((plan) => plan.shares.forEach((share) => held.set(share.domain, (held.get(share.domain) || 0) + share.layers)));
  const drawn = links.filter((link) => index.has(link.src) && index.has(link.dst)).map((link) => ({ link, css: classOf(link, index, used), path: curve(at[index.get(link.src)], at[index.get(link.dst)]) }));
  return html`<figure class="topology"><svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`${shown.length} sites and ${drawn.length} directions of links; the table below has their figures`}>
    <defs>${CLASSES.map(([css]) => html`<marker id=${`tip-${css}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="13" markerHeight="13" markerUnits="userSpaceOnUse" orient="auto"><path class=${css} d="M0 0L8 4L0 8Z" /></marker>`)}</defs>
    ${drawn.map(({ link, css, path }) => html`<path key=${pair(link)} class=${`use ${css} ${pair(link) === chosen ? "chosen" : ""}`} d=${path} marker-end=${`url(#tip-${css})`}><title>${link.src} → ${link.dst}: ${rate(link.last ? link.last.bandwidth_bps : link.forecast_bps[0])}</title></path>`)}
    ${shown.map((domain, k) => html`<circle key=${domain.name} class=${`site ${held.has(k) ? `f-c${k % 8}` : "out"}`} cx=${at[k][0].toFixed(1)} cy=${at[k][1].toFixed(1)} r="15" />`)}
  </svg>${shown.map((domain, k) => html`<div key=${domain.name} class="site-name" style=${labelled(at[k], shown.length)}><b>${domain.name}</b><span>${domain.alive} GPUs · ${held.has(k) ? `${held.get(k)} layers` : "no layers"}</span></div>`)}</figure>
  <div class="legend">${CLASSES.map(([css, name]) => html`<span><i class=${css}></i>${name}</span>`)}</div>
  ${domains.length > MOST && html`<p class="soft small-text">${domains.length - MOST} sites are not drawn; the table has all links.</p>`}`;
}
