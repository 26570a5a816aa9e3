// The token, and the keys of the page.
import { html } from "../html.js";
import { keepToken, token } from "../api.js";
import { restart } from "../live.js";
import { change } from "../store.js";
import { Dialog } from "./forms.js";

export function SignIn({ problem, live, me }) {
  const close = () => change({ signing: false });
  const submit = (event) => {
    event.preventDefault();
    keepToken(String(new FormData(event.target).get("token")).trim());
    change({ signing: false, me: null });
    restart();
  };
  return html`<${Dialog} title="Token" close=${close}>
    ${live === "denied" && problem && html`<p class="label">${problem}</p>`}
    <p>The address that <code>twin serve</code> prints has the token of a service on this machine and is taken over by itself. A token of the service's file needs the role read to look, push to submit jobs, decide to ask for decisions, admin for mode and rollback. What is typed here is kept for this tab only.</p>
    <form onSubmit=${submit}><p><label>token <input type="password" name="token" autocomplete="off" autofocus /></label></p>
    <p class="ends"><button type="button" class="button" onClick=${close}>Cancel</button> <button class="button main">Use it</button></p></form>
    ${(token() || me) && html`<p><button type="button" class="button" onClick=${() => { keepToken(""); location.assign("./?token="); }}>Forget the token</button></p>`}<//>`;
}

const PLACE = "twin.keys";
export const keysOn = () => sessionStorage.getItem(PLACE) !== "off";

export function Keys({ sections }) {
  const close = () => change({ keys: false });
  return html`<${Dialog} title="Keys" close=${close}><dl>
    <dt><kbd>1</kbd> to <kbd>9</kbd>, <kbd>0</kbd></dt><dd>${sections.map(([, title]) => title).join(", ")}</dd>
    <dt><kbd>/</kbd></dt><dd>search the decisions</dd><dt><kbd>t</kbd></dt><dd>token</dd><dt><kbd>?</kbd></dt><dd>this list</dd>
    <dt><kbd>←</kbd> <kbd>→</kbd></dt><dd>read a chart that has the focus; <kbd>Home</kbd>, <kbd>End</kbd>, <kbd>Esc</kbd></dd></dl>
    <p><label class="check"><input type="checkbox" checked=${keysOn()} onInput=${(event) => sessionStorage.setItem(PLACE, event.target.checked ? "on" : "off")} /> single keys (digits, /, t, ?) are on</label></p>
    <p class="ends"><button type="button" class="button main" onClick=${close} autofocus>Close</button></p><//>`;
}
