// Approve, hold, roll back, decide now: what changes the run, each asked back once and logged with its reason.
import { html } from "../html.js";
import { planLine, several, time } from "../format.js";
import { change } from "../store.js";
import { Answer, Button, Dialog, send } from "./forms.js";

const ACTS = {
  active: ["Approve: promote to active", "From now on decisions are orders to the job. The plan in force is ordered first, if the job has not said that it runs it.", "v1/mode"],
  hold: ["Hold", "No decisions are made until the mode is shadow or active again; an order that waits is withdrawn.", "v1/mode"],
  shadow: ["Back to shadow", "Decisions are made and logged, and order nothing; an order that waits is withdrawn.", "v1/mode"],
  rollback: ["Roll back", "The job is ordered back to the plan that it ran before the present one.", "v1/rollback"],
};

function Confirm({ what, asking }) {
  const [title, effect, path] = ACTS[what], close = () => change({ confirming: null });
  const submit = async (event) => {
    event.preventDefault();
    const reason = new FormData(event.target).get("reason");
    close();
    await send("control", path, path === "v1/mode" ? { mode: what, reason } : { reason }, { changes: true });
  };
  return html`<${Dialog} title=${title} close=${close}><p>${effect}</p><form onSubmit=${submit}>
    <p><label>reason, for the log <input name="reason" maxlength="500" autocomplete="off" autofocus /></label></p>
    <p class="ends"><button type="button" class="button" onClick=${close}>Cancel</button> <button class="button main" disabled=${asking !== null}>${title}</button></p></form><//>`;
}

export function Control({ state, me, asking, answers, confirming }) {
  const names = state.domains.map((domain) => domain.name), { mode, order, obstacle } = state, waiting = several(state).filter((job) => job.order);
  const act = (what, more) => html`<${Button} type="button" role="admin" me=${me} disabled=${asking !== null || mode === what} onClick=${() => change({ confirming: what })} ...${more}>${ACTS[what][0]}<//>`;
  return html`<dl><dt>mode</dt><dd><b>${mode}</b></dd>
      ${state.listed.length ? html`<dt>orders that wait</dt><dd>${waiting.length ? waiting.map((job) => html`<div>${job.name}, no. ${job.order.number}: ${job.order.plan ? planLine(job.order.plan, names) : "stop"} (${job.order.reason})</div>`) : "none"}</dd>` : html`<dt>order that waits</dt><dd>${order ? `no. ${order.number}: ${planLine(order.plan, names)} (${order.reason})` : "none"}</dd>`}
      <dt>decisions</dt><dd>${obstacle ? `none are made: ${obstacle}` : `the next is due at ${time(state.at + state.next_period_s)} UTC, or when links or GPUs change`}</dd>
      ${state.webhook && html`<dt>webhook</dt><dd>${state.webhook.waiting ? `${state.webhook.waiting} events wait` : "every event has arrived"}${state.webhook.refused ? `, ${state.webhook.refused} refused` : ""}${state.webhook.problem ? `; the last try failed: ${state.webhook.problem}` : ""}</dd>`}</dl>
    <p class="acts">${act("active", { kind: "main" })} ${act("hold")} ${act("shadow")} ${!state.listed.length && act("rollback", { disabled: asking !== null || mode !== "active" })}
      <${Button} type="button" role="decide" me=${me} disabled=${asking !== null} onClick=${() => send("control", "v1/decide", {}, { changes: true })}>Decide now<//></p>
    ${me && !me.roles.includes("admin") && html`<p class="soft small-text">The token ${me.name} has the roles ${me.roles.join(", ")}: mode and rollback need admin, a decision needs decide.</p>`}
    <${Answer} name="control" asking=${asking} answers=${answers}>${(found) => html`<p class="sentence">${"made" in found
      ? (found.made && found.decision ? `Decision ${found.decision.number}: ${found.decision.action}.` : `No decision was made: ${found.obstacle}.`)
      : `Mode is ${found.mode}; ${found.order ? `order ${found.order.number} waits for the job` : "no order waits"}.`}</p>`}<//>
    ${confirming && html`<${Confirm} what=${confirming} asking=${asking} />`}`;
}
