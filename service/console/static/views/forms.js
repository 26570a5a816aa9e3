// What every form has: it asks the service, and shows that it waits, what it was answered, or why not.
import { Component, html } from "../html.js";
import { ask } from "../api.js";
import { reread } from "../live.js";
import { change, store } from "../store.js";

export const may = (me, role) => Boolean(me) && me.roles.includes(role);

export async function send(name, path, body, { changes = false } = {}) {
  if (store.asking) return;
  change({ asking: name });
  try {
    const answer = await ask(path, body);
    change({ asking: null, answers: { ...store.answers, [name]: { body: answer } } });
  } catch (error) {
    change({ asking: null, answers: { ...store.answers, [name]: { message: error.message } } });
  }
  if (changes) await reread();
}

export function Answer({ name, asking, answers, children }) {
  const answer = answers[name];
  const shown = asking === name ? html`<p class="soft">asking…</p>` : !answer ? null : answer.message ? html`<p class="label error">${answer.message}</p>` : children(answer.body);
  return html`<div role="status" aria-live="polite">${shown}</div>`;
}

export function Button({ children, role, me, kind = "", ...more }) {
  const free = may(me, role);
  return html`<button ...${more} class=${`button ${kind}`} disabled=${!free || more.disabled} title=${free ? undefined : `needs a token with the role ${role}`}>${children}</button>`;
}

// A modal dialog: Escape and the first button close it, the focus goes back to where it was.
export class Dialog extends Component {
  componentDidMount() {
    this.before = document.activeElement;
    this.element.showModal();
  }

  componentWillUnmount() {
    if (this.element.open) this.element.close();
    if (this.before && this.before.isConnected) this.before.focus();
  }

  render({ title, close, children }) {
    return html`<dialog aria-label=${title} ref=${(element) => { if (element) this.element = element; }} onCancel=${(event) => { event.preventDefault(); close(); }}>
      <h2>${title}</h2>${children}</dialog>`;
  }
}
