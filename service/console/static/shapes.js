// What is drawn of the figures: order of samples, scales, lines that lie on each other, the section that is read.
// Nothing here knows of the page, so that it can be tried without a browser.

const largest = (values) => values.reduce((most, value) => (Number.isFinite(value) && value > most ? value : most), 0);

// Samples by time, each time once, the newest `most` of them: a stream repeats what a reader may have missed, and late samples come late.
export function merged(rows, more, most) {
  const last = rows.length ? rows[rows.length - 1].at : -Infinity;
  if (more.length === 1 && more[0].at > last) return [...rows.slice(1 - most), more[0]];
  const at = new Map([...rows, ...more].map((row) => [row.at, row]));
  return [...at.values()].sort((a, b) => a.at - b.at).slice(-most);
}

// For each line the first one before it that it covers, else -1; `columns` are without the time.
export function covered(columns) {
  const most = largest(columns.flat());
  const alike = (a, b) => a.length === b.length && a.some(Number.isFinite)
    && a.every((value, k) => Number.isFinite(value) === Number.isFinite(b[k]) && (!Number.isFinite(value) || Math.abs(value - b[k]) <= 0.01 * most));
  return columns.map((column, k) => columns.slice(0, k).findIndex((before) => alike(column, before)));
}

// The least of 1, 2, 5, 10, 20, … that is no less than a value: a scale that does not change with every sample.
export function roundedUp(value) {
  if (!(value > 0) || !Number.isFinite(value)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= value * (1 - 1e-9));
}

// Upper end of the scale that all links share: the largest sample, and the largest end of an 80 % interval.
export const linkScale = (links, samples) => roundedUp(largest([...samples.map((one) => one.bandwidth_bps),
  ...links.flatMap((link) => [link.last ? link.last.bandwidth_bps : 0, ...link.high80_bps])]));

// Index of the section that is read. `tops` are distances from the top of the window, `chosen` the section that was gone to.
export function readingOf(tops, height, { atEnd = false, chosen = -1 } = {}) {
  const line = 0.2 * height;
  const passed = tops.filter((top) => top <= line).length - 1;
  if (atEnd && chosen > passed && tops[chosen] < height) return chosen; // the page ends before it can come to the top
  return atEnd ? tops.length - 1 : Math.max(0, passed);
}
