// Keeps the store up to date: everything once, then the stream, and what the stream does not carry now and then.
import { Refused, ask, follow } from "./api.js";
import { merged } from "./shapes.js";
import { change, store } from "./store.js";

const KEPT = 500, SAMPLES = 2000, RETRY_MS = [1000, 2000, 5000, 10000];
const HAPPENED = new Set(["order_given", "order_closed", "mode_changed", "rollback_requested", "link_failed", "link_restored", "gpu_failed", "gpu_repaired", "plan_applied", "clock_jumped", "clock_settled", "message_quarantined", "job_submitted", "job_started", "job_preempted", "job_finished"]);
let last = null, tries = 0, stale = new Set(), stopping = new AbortController(), waking = null;

const PATHS = { state: "v1/state", accounts: "v1/accounts", series: "v1/series", queue: "v1/jobs" };
const turns = {};

// An answer that comes after that of a later question is old, and dropped.
async function read(name) {
  const turn = turns[name] = (turns[name] || 0) + 1;
  const found = await ask(PATHS[name]);
  if (turns[name] === turn) change({ [name]: found });
}

export const pair = (link) => `${link.src}>${link.dst}`;

export async function choose(link) {
  change({ link, samples: [] });
  const [src, dst] = link.split(">");
  const { rows } = await ask(`v1/history?what=links&limit=${SAMPLES}&src=${encodeURIComponent(src)}&dst=${encodeURIComponent(dst)}`);
  if (store.link === link) change({ samples: merged(rows, store.samples, SAMPLES) });
}

async function everything() {
  const [me, state, accounts, series, decisions, events] = await Promise.all([
    ask("v1/me"), ask("v1/state"), ask("v1/accounts"), ask("v1/series"),
    ask(`v1/history?what=decisions&limit=${KEPT}`), ask(`v1/history?what=events&limit=${KEPT}`),
  ]);
  change({ me, state, accounts, series, decisions: decisions.rows, events: events.rows, problem: "", signing: false });
  last = Math.max(-1, ...decisions.rows.map((row) => row.seq), ...events.rows.map((row) => row.seq));
  const known = state.links.map(pair);
  refresh(["queue"]);
  if (known.length) await choose(known.includes(store.link) ? store.link : known[0]);
}

const joined = (rows, row, kept) => rows.some((one) => one.seq === row.seq && one.at === row.at) ? rows : [...rows.slice(1 - kept), row];

function heard(event) {
  last = event.seq;
  if (event.event === "link_observed") sampled(event);
  if (event.event === "decided") change({ decisions: joined(store.decisions, event, KEPT) });
  if (HAPPENED.has(event.event)) change({ events: joined(store.events, event, KEPT) });
  stale.add("state");
  if (["jobs_changed", "job_submitted", "job_started", "job_preempted", "job_finished"].includes(event.event)) refresh(["queue"]);
  if (event.event !== "link_observed") ["accounts", "series"].forEach((name) => stale.add(name));
}

// Bandwidths of the table and samples of the chosen link follow each sample at once; forecasts come with the state.
function sampled(event) {
  const { state, link } = store, names = state.domains.map((domain) => domain.name);
  const seen = new Map(event.samples.map(([i, j, bandwidth_bps, latency_s]) => [`${names[i]}>${names[j]}`, { at: event.sampled_at ?? event.at, bandwidth_bps, latency_s }]));
  change({ state: { ...state, links: state.links.map((one) => seen.has(pair(one)) && !(one.last && one.last.at > seen.get(pair(one)).at) ? { ...one, last: seen.get(pair(one)) } : one) } });
  if (seen.has(link)) change({ samples: merged(store.samples, [seen.get(link)], SAMPLES) });
}

async function refresh(names) {
  names.forEach((name) => stale.delete(name));
  try {
    await Promise.all(names.map(read));
  } catch (error) {
    names.forEach((name) => stale.add(name)); // the stream says whether the service is there
  }
}

export const reread = () => refresh(["state", "accounts", "series", "queue"]);

export function start() {
  setInterval(() => stale.has("state") && store.live === "live" && refresh(["state"]), 2000);
  setInterval(() => store.live === "live" && refresh(["accounts"]), 5000);
  setInterval(() => store.live === "live" && refresh(["queue"]), 10000);
  setInterval(() => store.live === "live" && refresh(["state", "series"]), 30000);
  run();
}

// After another token, or at once where the next try is still far.
export function restart() {
  stopping.abort();
  tries = 0;
  if (waking) waking();
}

async function run() {
  for (; ;) {
    stopping = new AbortController();
    try {
      change({ live: "connecting" });
      await everything();
      await follow(last, () => { tries = 0; change({ live: "live" }); }, heard, stopping.signal);
      change({ live: "lost" });
    } catch (error) {
      if (error.name === "AbortError") continue;
      const denied = error instanceof Refused && [401, 403].includes(error.status);
      change({ live: denied ? "denied" : "lost", problem: error.message, signing: store.signing || denied });
    }
    await new Promise((wake) => { waking = wake; if (store.live !== "denied") setTimeout(wake, RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)]); });
    waking = null;
  }
}
