// Figures in words. Nothing here makes markup.
export const NONE = "–";

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export function plain(value, digits = 3) {
  if (!known(value)) return NONE;
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1);
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, Math.min(15, Math.floor(Math.log10(Math.abs(value) || 1)) + 1)) });
}

const SCALES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [0, ""]];

export function scaled(value, unit, digits = 3) {
  if (!known(value)) return NONE;
  const [scale, prefix] = SCALES.find(([least]) => Math.abs(value) >= least);
  return `${(scale ? value / scale : value).toLocaleString("en", { maximumSignificantDigits: digits })} ${prefix}${unit}`;
}

export const rate = (bps) => scaled(bps, "bit/s");
export const bytes = (count) => scaled(count, "B");
export const usd = (value) => known(value) ? `$${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: value && Math.abs(value) < 1 ? 4 : 2 })}` : NONE;
export const percent = (share, digits = 3) => known(share) ? `${(100 * share).toLocaleString("en", { maximumSignificantDigits: digits })} %` : NONE;
export const ms = (seconds) => known(seconds) ? `${plain(seconds * 1e3)} ms` : NONE;

export function duration(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds < 120) return `${plain(seconds)} s`;
  if (seconds < 7200) return `${plain(seconds / 60)} min`;
  return seconds < 172800 ? `${plain(seconds / 3600)} h` : `${plain(seconds / 86400)} days`;
}

// UTC, as everything in the log; the date only where it is not today's.
export function time(at) {
  if (!known(at)) return NONE;
  const text = new Date(at * 1000).toISOString(), today = new Date().toISOString().slice(0, 10);
  return (text.slice(0, 10) === today ? "" : `${text.slice(0, 10)} `) + text.slice(11, 19);
}

export const layersOf = (plan) => new Map((plan ? plan.shares : []).map((share) => [share.domain, share.layers]));

// A plan in one line, stages in the order of the pipeline.
export function planLine(plan, domains) {
  if (!plan) return NONE;
  const shares = plan.shares.map((s) => `${domains[s.domain] ?? s.domain}: ${s.layers} layers` + (s.tp > 1 || s.pp > 1 ? ` (tp ${s.tp}, pp ${s.pp})` : ""));
  return `${shares.join(" → ")} · dp ${plan.dp} · ${plan.micro_batches} × ${plan.micro_batch} · ${plan.schedule}`;
}

// Jobs of a scenario that lists several; none where it has one, whose figures stand in the state itself.
export const several = (state) => state.jobs.filter((job) => job.name);
export const plansOf = (state) => state.jobs.map((job) => job.plan).filter(Boolean);

// Reasons of policies name domains d0, d1, …; the page has their names.
export const named = (reason, domains) => String(reason ?? "").replace(/\bd(\d+)(?=:|\b)/g, (text, k) => domains[k] ?? text);
