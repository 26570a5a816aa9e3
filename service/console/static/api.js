// Requests to the service. A token that was typed is in sessionStorage and goes with the tab; that of the address is a cookie.
const PLACE = "twin.token";

export const token = () => sessionStorage.getItem(PLACE) || "";
export function keepToken(text) {
  if (text) sessionStorage.setItem(PLACE, text);
  else sessionStorage.removeItem(PLACE);
}

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const headers = (more) => ({ ...(token() ? { Authorization: `Bearer ${token()}` } : {}), ...more });

async function failure(answer) {
  const body = await answer.json().catch(() => ({}));
  return new Refused(answer.status, body.message || `HTTP ${answer.status}`);
}

export async function ask(path, body) {
  const sent = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, { ...sent, headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }), cache: "no-store" });
  } catch {
    throw new Refused(0, "the service does not answer");
  }
  if (!answer.ok) throw await failure(answer);
  return answer.json();
}

// Server-sent events read with fetch, because EventSource can send no token. Returns when the stream ends.
export async function follow(last, opened, heard, signal) {
  const more = last === null ? {} : { "Last-Event-ID": String(last) };
  const answer = await fetch("v1/stream", { headers: headers(more), cache: "no-store", signal });
  if (!answer.ok) throw await failure(answer);
  opened();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      if (data) heard(JSON.parse(data));
    }
  }
}
