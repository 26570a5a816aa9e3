// The page: its sections in order, its keys, and one `render` whenever the store has changed.
import { html, render } from "./html.js";
import { plain, time } from "./format.js";
import { start } from "./live.js";
import { readingOf } from "./shapes.js";
import { change, drawnBy, store } from "./store.js";
import { Keys, SignIn, keysOn } from "./views/access.js";
import { Control } from "./views/control.js";
import { Costs } from "./views/costs.js";
import { Decisions } from "./views/decisions.js";
import { Domains } from "./views/domains.js";
import { Jobs } from "./views/jobs.js";
import { Links } from "./views/links.js";
import { Plans } from "./views/plans.js";
import { Queue } from "./views/queue.js";
import { Admission, DryRun } from "./views/whatif.js";

const SECTIONS = [
  ["costs", "Cost and egress", Costs], ["domains", "Domains", Domains], ["links", "Links", Links], ["plan", "Plan over time", Plans],
  ["decisions", "Decisions", Decisions], ["control", "Approve, hold, roll back", Control], ["what-if", "What if: dry run", DryRun],
  ["admission", "What if: another job", Admission], ["queue", "Queue", Queue], ["jobs", "Jobs", Jobs],
];
const WORDS = { connecting: "connecting", live: "live", lost: "connection lost, trying again", denied: "a token is needed" };

// What of the telemetry is made up, and the sections that show it.
const SYNTHETIC = { links: "the links are synthetic", job: "the job is synthetic (simulated)" };
const SHOWS = { costs: "job", domains: "job", links: "links", plan: "job", jobs: "job" };
const MadeUp = ({ id, state }) => state.synthetic.includes(SHOWS[id]) && html` <em class="tag">${SHOWS[id] === "job" ? "simulated job" : "synthetic links"}</em>`;

function Header({ state, me, live, problem }) {
  return html`<header><p class="skip-line"><a class="skip" href="#content">To the content</a></p>
    <div class="head"><div><h1>${state ? `${state.scenario}, ${state.policy}` : "twin console"}</h1>
      ${state && html`<p class="soft">${state.listed.length ? `${plain(state.listed.length)} jobs` : state.job.model} over ${state.domains.length} domains · run <span class="mono">${state.run}</span> · ${time(state.at)} UTC</p>`}</div>
    <p class="tools"><span class=${`pill is-${live}`} role="status">${WORDS[live]}</span>${state && html`<span class=${`pill mode-${state.mode}`}>${state.mode}</span>`}
      <button type="button" class="button" onClick=${() => change({ signing: true })}>${me ? me.name : "token"}</button><button type="button" class="button" onClick=${() => change({ keys: true })}>keys</button></p></div>
    ${state && state.problem && html`<p class="label error" role="alert">Not ready: ${state.problem}.</p>`}
    ${state && state.synthetic.length > 0 && html`<p class="label made-up">Demonstration: ${state.synthetic.map((part) => SYNTHETIC[part]).join(", ")}. No figure here is of a real network or job.</p>`}
    ${live === "lost" && html`<p class="label">${problem || "The stream has ended."} The figures below are the last ones that came.</p>`}</header>`;
}

function Page(given) {
  const there = given.state && given.accounts && given.series;
  return html`<div class="page"><${Header} ...${given} />
    <nav aria-label="Contents"><ol>${SECTIONS.map(([id, title]) => html`<li><a href=${`#${id}`} aria-current=${given.reading === id ? "true" : undefined}>${title}</a></li>`)}</ol></nav>
    <main id="content" tabindex="-1">${there ? SECTIONS.map(([id, title, View]) => html`<section key=${id} id=${id} aria-labelledby=${`${id}-title`} tabindex="-1"><h2 id=${`${id}-title`}>${title}<${MadeUp} id=${id} state=${given.state} /></h2><${View} ...${given} /></section>`)
      : html`<p class="soft">${given.live === "denied" ? "The service asks for a token." : "The state of the run comes."}</p>`}</main></div>
    ${given.signing && html`<${SignIn} ...${given} />`}${given.keys && html`<${Keys} sections=${SECTIONS} />`}`;
}

// Keys 1 to 9 and 0 are the first ten sections.
const place = (key) => (/^[0-9]$/.test(key) ? (Number(key) + 9) % 10 : -1);
const jump = (id) => { const part = document.getElementById(id); if (part) { goneTo(id); part.scrollIntoView(); part.focus({ preventScroll: true }); } };

// The table of contents marks the section that is being read, or the one that was gone to where the page ends before it.
let chosen = -1;
const goneTo = (id) => { chosen = SECTIONS.findIndex(([one]) => one === id); mark(); };
function mark() {
  const parts = [...document.querySelectorAll("main section")], { scrollHeight } = document.documentElement;
  if (!parts.length) return;
  const at = readingOf(parts.map((part) => part.getBoundingClientRect().top), innerHeight, { atEnd: scrollY > 0 && scrollY + innerHeight >= scrollHeight - 2, chosen });
  if (parts[at].id !== store.reading) change({ reading: parts[at].id });
}
addEventListener("scroll", () => requestAnimationFrame(mark), { passive: true });
addEventListener("resize", mark);
addEventListener("hashchange", () => goneTo(location.hash.slice(1)));
for (const event of ["wheel", "touchmove"]) addEventListener(event, () => { chosen = -1; }, { passive: true });

addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, dialog"), other = event.ctrlKey || event.altKey || event.metaKey;
  if (typing || other || !keysOn()) return;
  const keys = { "?": () => change({ keys: true }), t: () => change({ signing: true }), "/": () => { jump("decisions"); document.getElementById("decision-search")?.focus(); } };
  const act = keys[event.key] || (SECTIONS[place(event.key)] && (() => jump(SECTIONS[place(event.key)][0])));
  if (!act) return;
  event.preventDefault();
  act();
});

const root = document.getElementById("console");
root.replaceChildren();
let complete = false;
drawnBy(() => {
  render(html`<${Page} ...${store} />`, root);
  if (!store.reading) mark();
  if (complete || !store.series) return;
  complete = true;
  performance.mark("figures drawn");
});
start();
