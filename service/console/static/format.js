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

const nameOf = (domains, k) => domains[k] ?? `d${k}`;

// A plan in one line, in the notation of all of twin: twin/core/plan_text.py, which a test holds equal.
export function planLine(plan, domains) {
  if (!plan) return NONE;
  const cp = plan.context_parallel ?? 1, chunks = plan.chunks ?? 1, ep = plan.ep ?? 1;
  const shares = plan.shares.map((s) => `${nameOf(domains, s.domain)}: ${s.layers} layers (tp ${s.tp}, pp ${s.pp})`);
  const parts = [shares.join(plan.sync ? " | " : " > "), `dp ${Math.floor(plan.dp / cp)}`];
  if (cp > 1) parts.push(`cp ${cp}`);
  if (ep > 1) parts.push(`ep ${ep}`);
  parts.push(`${plan.micro_batches} micro-batch${plan.micro_batches > 1 ? "es" : ""} of ${plan.micro_batch}`);
  parts.push(plan.schedule + (chunks > 1 ? ` of ${chunks} chunks` : ""));
  if (plan.p2p !== "blocking") parts.push(`${plan.p2p} sends`);
  if (plan.extra_warmup) parts.push(`warm-up +${plan.extra_warmup}`);
  if (plan.sequence_parallel) parts.push("sequence parallel");
  if (plan.sync) parts.push(`replicas averaged every ${plan.sync.inner_steps > 1 ? `${plan.sync.inner_steps} steps` : "step"}`);
  for (const route of plan.routes ?? []) {
    const names = route.map((k) => nameOf(domains, k));
    parts.push(`${names[0]} to ${names[names.length - 1]} via ${names.slice(1, -1).join(", ")}`);
  }
  return parts.join(", ");
}

// Jobs of a scenario that lists several; none where it has one, whose figures stand in the state itself.
export const several = (state) => state.jobs.filter((job) => job.name);
export const plansOf = (state) => state.jobs.map((job) => job.plan).filter(Boolean);
