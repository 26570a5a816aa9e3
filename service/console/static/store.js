// The state of the page: one object, changed by `change`, drawn at most once a frame.
export const store = {
  live: "connecting", // connecting, live, lost, ended
  problem: "", // why nothing could be read
  me: null, state: null, accounts: null, series: null, queue: null, decisions: [], events: [],
  link: null, samples: [], whole: false, // the chosen link, "src>dst", and its samples
  alone: false, // its chart has a scale of its own
  filter: { words: "", kind: "" }, opened: null,
  reading: null, // id of the section that is being read
  asking: null, answers: {}, // name of the form that waits; form -> { ok, body | message }
  signing: false, keys: false, confirming: null, // dialogs
  supposed: [], // links of the dry run: { link, gbps }
};
let draw = () => {}, waiting = false;

export function change(parts) {
  Object.assign(store, parts);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

export function drawnBy(call) { draw = call; }

// The last result of `make` while its arguments stay the same objects.
export function kept(make) {
  let before = null, result;
  return (...given) => {
    if (!before || given.some((one, k) => one !== before[k])) [before, result] = [given, make(...given)];
    return result;
  };
}
