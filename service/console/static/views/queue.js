// The queue beside the job that is followed: a form that submits, a table with where, when and why not now.
import { html } from "../html.js";
import { ask } from "../api.js";
import { duration, plain, several, time } from "../format.js";
import { reread } from "../live.js";
import { change, store } from "../store.js";
import { Answer, Button, may } from "./forms.js";

// One change of the queue; the answer names what was not accepted.
async function tell(item, done) {
  if (store.asking) return;
  change({ asking: "queue" });
  let answer;
  try {
    const body = await ask("v1/jobs", item);
    answer = body.refused.length ? { message: `${item.id}: ${body.refused[0].reason}` } : { body: { ...body, done } };
  } catch (error) {
    answer = { message: error.message };
  }
  change({ asking: null, answers: { ...store.answers, queue: answer } });
  if (answer.body) await reread();
  return answer.body;
}

async function submit(event) {
  event.preventDefault();
  const form = event.target, given = Object.fromEntries(new FormData(form));
  const item = { kind: "submit", id: given.id.trim() };
  if (given.gpus) Object.assign(item, { gpus: Number(given.gpus), estimate_s: Number(given.minutes) * 60 });
  if ((given.user || "").trim()) item.user = given.user.trim();
  if (await tell(item, (made) => `${item.id} ${made.accepted ? "is submitted" : "was submitted before"}`)) form.reset();
}

function When({ job }) {
  if (job.state === "placed") return "is placed";
  if (job.state === "running") return html`runs since ${time(job.started_at)}`;
  if (job.state !== "waiting") return `${job.state} ${time(job.closed_at)}`;
  return job.starts_in_s === null ? "start not known" : job.starts_in_s === 0 ? "may start now" : `starts in ${duration(job.starts_in_s)}`;
}

const places = (job) => (job.on ? Object.entries(job.on).map(([name, count]) => `${name} ${plain(count)}`).join(", ") : job.domain ?? "");

function Row({ job, me, asking }) {
  const at = places(job);
  return html`<tr><th scope="row">${job.id}</th><td><${When} job=${job} /></td><td>${at}</td><td class="n">${plain(job.gpus)}</td><td class="n">${duration(job.estimate_s)}</td><td>${job.user}</td>
    <td class="why">${job.reason}</td><td>${job.state === "waiting" && html`<${Button} type="button" role="push" me=${me} disabled=${asking !== null} aria-label=${`cancel job ${job.id}`} onClick=${() => tell({ kind: "cancel", id: job.id }, () => `${job.id} is cancelled`)}>cancel<//>`}</td></tr>`;
}

// Jobs of a scenario with several: those that it lists and that are not there yet can be submitted, the others ended.
function Listed({ state, me, queue, asking, answers }) {
  const there = new Set(several(state).map((job) => job.name)), left = state.listed.filter((name) => !there.has(name));
  const end = (job) => tell({ kind: "end", id: job.id }, () => `${job.id} has ended`);
  return html`<p>Jobs of the scenario: each is there from its submission until it ends. They decide in order of priority, and the greater priority takes GPUs from the smaller.</p>
    ${left.length > 0 && html`<form onSubmit=${submit}><p><label>job <select name="id">${left.map((name) => html`<option>${name}</option>`)}</select></label> <${Button} type="submit" kind="main" role="push" me=${me} disabled=${asking !== null}>Submit<//></p></form>`}
    <${Answer} name="queue" asking=${asking} answers=${answers}>${(made) => html`<p class="sentence">${made.done(made)}.</p>`}<//>
    ${!queue ? html`<p class="soft small-text">The jobs come.</p>` : !queue.jobs.length ? html`<p class="soft small-text">No job was submitted.</p>`
      : html`<div class="scroll tall-list" tabindex="0" role="region" aria-label="table: queue"><table><thead><tr><th scope="col">job</th><th scope="col">state, UTC</th><th scope="col">where</th><th scope="col" class="n">GPUs</th><th scope="col">why</th><th scope="col">end</th></tr></thead>
      <tbody>${queue.jobs.map((job) => html`<tr key=${job.id}><th scope="row">${job.id}</th><td>${job.state === "waiting" ? `waits since ${time(job.submitted_at)}` : html`<${When} job=${job} />`}</td><td>${places(job)}</td><td class="n">${plain(job.gpus)}</td><td class="why">${job.reason}</td>
        <td>${job.state !== "ended" && html`<${Button} type="button" role="push" me=${me} disabled=${asking !== null} aria-label=${`end job ${job.id}`} onClick=${() => end(job)}>end<//>`}</td></tr>`)}</tbody></table></div>`}
    ${queue && html`<p class="soft small-text">Free now: ${Object.entries(queue.free_gpus).map(([name, count]) => `${name} ${plain(count)}`).join(", ")}.</p>`}`;
}

export function Queue(given) {
  return given.state.listed.length ? html`<${Listed} ...${given} />` : html`<${Beside} ...${given} />`;
}

function Beside({ state, me, queue, asking, answers }) {
  const most = Math.max(...state.domains.map((domain) => domain.gpus));
  return html`<p>Jobs that wait for GPUs of one domain beside the job that is followed: where and when each would start, and why not now. The site starts them and reports it.</p>
    <form onSubmit=${submit}><div class="fields">
      <label>id of the job <input name="id" required maxlength="64" pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*" autocomplete="off" spellcheck=${false} /></label>
      <label>GPUs, in one domain <input name="gpus" type="number" required min="1" max=${most} step="1" /></label>
      <label>estimate, minutes <input name="minutes" type="number" required min="0.02" max="144000" step="any" /></label>
      <label>user <input name="user" maxlength="64" autocomplete="off" spellcheck=${false} placeholder="not said" /></label></div>
    <p><${Button} type="submit" kind="main" role="push" me=${me} disabled=${asking !== null}>Submit<//></p></form>
    ${me && !may(me, "push") && html`<p class="soft small-text">The token ${me.name} has the roles ${me.roles.join(", ")}: jobs are submitted and cancelled with push.</p>`}
    <${Answer} name="queue" asking=${asking} answers=${answers}>${(made) => html`<p class="sentence">${made.done(made)}.</p>`}<//>
    ${!queue ? html`<p class="soft small-text">The queue comes.</p>` : !queue.jobs.length ? html`<p class="soft small-text">No job waits, runs or has ended.</p>`
      : html`<div class="scroll tall-list" tabindex="0" role="region" aria-label="table: queue"><table><thead><tr><th scope="col">job</th><th scope="col">state, UTC</th><th scope="col">where</th><th scope="col" class="n">GPUs</th><th scope="col" class="n">estimate</th><th scope="col">user</th><th scope="col">why</th><th scope="col">cancel</th></tr></thead>
      <tbody>${queue.jobs.map((job) => html`<${Row} key=${job.id} job=${job} me=${me} asking=${asking} />`)}</tbody></table></div>`}
    ${queue && html`<p class="soft small-text">Free now: ${Object.entries(queue.free_gpus).map(([name, count]) => `${name} ${plain(count)}`).join(", ")}. Scheduler ${queue.scheduler}; running jobs are taken to end when their estimate is over.</p>`}`;
}
