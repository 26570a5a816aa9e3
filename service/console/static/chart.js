// A chart over time: uPlot with the colours of the page, readable with the keyboard.
import { Component, html } from "./html.js";
import { plain, time } from "./format.js";
import { covered } from "./shapes.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const FONT = "11px system-ui, sans-serif", HEIGHT = 190;
const drawn = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((chart) => chart.u.redraw(false, true)));
for (const [event, print] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => {
    document.documentElement.classList.toggle("print", print);
    drawn.forEach((chart) => { chart.fit(); chart.u.redraw(false, true); });
  });
}

const clock = (u, splits, _, __, step) => splits.map((at, k) => {
  const text = new Date(at * 1000).toISOString(), day = text.slice(0, 10);
  const short = step >= 86400 ? day : text.slice(11, step < 60 ? 19 : 16);
  const new_ = k > 0 && day !== new Date(splits[k - 1] * 1000).toISOString().slice(0, 10);
  return new_ && step < 86400 ? `${short}\n${day}` : short;
});

// props: label, unit, columns [x, ...ys], lines [{ name, colour, dash, hidden, steps }], bands [[upper, lower, colour]],
// low and top of the axis where they are known, now: a moment to mark. A line that lies on another one is drawn
// in gaps, so that both are seen, and the legend says so.
export class Chart extends Component {
  constructor(props) {
    super(props);
    this.state = { read: "" };
  }

  componentDidMount() {
    this.u = new uPlot(this.options(), this.props.columns, this.host);
    this.watch = new ResizeObserver(() => this.fit());
    this.watch.observe(this.host);
    drawn.add(this);
  }

  componentDidUpdate(before) {
    if (before.columns === this.props.columns && before.top === this.props.top) return;
    this.alike(this.props).forEach((under, k) => { this.u.series[k + 1].dash = this.dash(this.props.lines[k], under); });
    this.u.setData(this.props.columns);
  }

  // The line that each line covers, -1: none; ends of intervals are no lines.
  alike({ columns, lines }) {
    return covered(columns.slice(1).map((column, k) => (lines[k].hidden || lines[k].dash ? [] : column)));
  }

  dash(line, under) { return under < 0 ? line.dash : [7, 7]; }

  componentWillUnmount() {
    drawn.delete(this);
    this.watch.disconnect();
    this.u.destroy();
  }

  fit() {
    const width = this.host.clientWidth;
    if (width && width !== this.u.width) this.u.setSize({ width, height: HEIGHT });
  }

  options() {
    const { lines, bands = [], scale } = this.props, alike = this.alike(this.props), stroke = () => colour("soft"), grid = { stroke: () => colour("grid"), width: 1 };
    const limits = ({ low, top }, least, most) => least === null || least === undefined ? [0, 1] : [low ?? Math.min(least, 0), top ?? (most > 0 ? most * 1.08 : 1)];
    const range = (u, least, most) => limits(this.props, least, most); // those of now: a scale may change
    const wide = (u, words) => Math.max(48, 16 + 7 * Math.max(0, ...(words || []).map((word) => word.length)));
    return {
      width: this.host.clientWidth || 300, height: HEIGHT, legend: { show: false }, padding: [8, 36, 0, 0],
      tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"), scales: { x: { time: true }, y: { range } },
      series: [{}, ...lines.map((line, k) => ({ label: line.name, show: true, spanGaps: false, points: { show: false }, width: line.hidden ? 0 : 1.6, dash: this.dash(line, alike[k]),
        stroke: () => (line.hidden ? "transparent" : colour(line.colour)), paths: line.steps ? uPlot.paths.stepped({ align: 1 }) : undefined }))],
      bands: bands.map(([upper, lower, name]) => ({ series: [upper, lower], fill: () => `color-mix(in srgb, ${colour(name)} 18%, transparent)` })),
      axes: [
        { stroke, font: FONT, grid, ticks: grid, space: 64, size: 44, values: clock },
        { stroke, font: FONT, grid, ticks: grid, space: 30, size: wide, values: (u, splits) => splits.map((at) => plain(scale ? at / scale : at, 4)) },
      ],
      cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false }, sync: { key: "time", scales: ["x", null] } },
      hooks: { setCursor: [(u) => this.read(u)], draw: [(u) => this.mark(u)] },
    };
  }

  mark(u) {
    const at = this.props.now;
    if (!at || at < u.scales.x.min || at > u.scales.x.max) return;
    const left = u.valToPos(at, "x", true);
    u.ctx.save();
    u.ctx.strokeStyle = colour("soft");
    u.ctx.setLineDash([4, 4]);
    u.ctx.beginPath();
    u.ctx.moveTo(left, u.bbox.top);
    u.ctx.lineTo(left, u.bbox.top + u.bbox.height);
    u.ctx.stroke();
    u.ctx.restore();
  }

  read(u) {
    const at = u.cursor.idx, { lines, unit, scale } = this.props;
    if (u.cursor.left < 0 || at === null || at === undefined) return this.say("");
    const words = lines.map((line, k) => [line, u.data[k + 1][at]]).filter(([, value]) => value !== null && value !== undefined);
    this.say([time(u.data[0][at]), ...words.map(([line, value]) => `${line.name} ${plain(scale ? value / scale : value)} ${unit}`)].join(" · "));
  }

  say(read) { if (read !== this.state.read) this.setState({ read }); }

  steer(event) {
    const { u } = this, count = u.data[0].length, at = u.cursor.left >= 0 ? u.cursor.idx ?? 0 : count;
    const go = (k) => { const to = Math.max(0, Math.min(count - 1, k)); u.setCursor({ left: u.valToPos(u.data[0][to], "x"), top: 10 }); };
    const keys = { ArrowLeft: () => go(at - 1), ArrowRight: () => go(at + 1), Home: () => go(0), End: () => go(count - 1), Escape: () => u.setCursor({ left: -10, top: -10 }) };
    if (!keys[event.key] || !count) return;
    event.preventDefault();
    keys[event.key]();
  }

  render({ label, note, lines, unit, columns }, { read }) {
    const under = this.alike({ columns, lines }), names = new Map(lines.map((line, k) => [line, under[k] < 0 ? line.name : `${line.name} (as ${lines[under[k]].name})`]));
    const shown = lines.filter((line) => !line.hidden);
    return html`<figure class="chart"><figcaption><i>${unit}</i><strong>${label}</strong>${note ? ` ${note}` : ""}</figcaption>
      ${shown.length > 1 && html`<div class="legend inset">${shown.map((line) => html`<span><i class=${`k-${line.colour}`}></i>${names.get(line)}</span>`)}</div>`}
      <div class="host" role="application" tabindex="0" aria-label=${`Chart: ${label}. Left and right arrow keys read its values.`}
        ref=${(element) => { if (element) this.host = element; }} onKeyDown=${(event) => this.steer(event)}></div>
      <output class="read">${read}</output></figure>`;
  }
}
