// Charts with hover and zoom, and the table of decisions. All data lie in this page; nothing is loaded.
"use strict";
const all = (query, within = document) => [...within.querySelectorAll(query)];
const json = (element) => JSON.parse(element.textContent);
const origin = json(document.getElementById("clock")).origin; // seconds since 1970; null: time since the start
const built = []; // charts that are drawn
const ALPHA = { ink: 0.75, bad: 0.22 };
let zoom = null; // [from, to] that all charts over time show; null: everything

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const iso = (seconds) => new Date(seconds * 1000).toISOString().replace("T", " ");

function unitOfTime(seconds) {
  if (seconds >= 172800) return [86400, "days"];
  if (seconds >= 7200) return [3600, "hours"];
  return seconds >= 120 ? [60, "minutes"] : [1, "seconds"];
}

// Step of a column -> value on the axis: a date, time since the start in its unit, or a number.
function axisOf(data) {
  if (data.axis) return { at: (step) => step * data.quantum, name: data.axis, dated: false, group: data.axis };
  if (origin !== null) return { at: (step) => origin + step * data.quantum, name: "UTC", dated: true, group: "time" };
  const [scale, name] = unitOfTime(data.right * data.quantum);
  return { at: (step) => (step * data.quantum) / scale, name, dated: false, group: "time" };
}

function dates(u, splits, _, __, step) {
  return splits.map((at, k) => {
    const text = iso(at), clock = text.slice(11, step < 60 ? 19 : 16);
    if (step >= 86400) return text.slice(0, 10);
    return k === 0 || text.slice(0, 10) !== iso(splits[k - 1]).slice(0, 10) ? clock + "\n" + text.slice(0, 10) : clock;
  });
}

const figures = (u, splits) => splits.map((at) => (Math.abs(at) >= 1e4 ? at.toLocaleString("en") : String(+at.toPrecision(6))));

// One table of columns for uPlot, its series and bands, from the marks of a chart.
function seriesOf(data, axis) {
  const tables = [], series = [{}], bands = [], read = [];
  for (const mark of data.marks.filter((one) => one.dx)) {
    let step = 0;
    tables.push([mark.dx.map((more) => axis.at((step += more))), ...mark.ys]);
    const stroke = () => variable(mark.colour);
    const first = series.length;
    read.push([first, mark.name]);
    if (mark.kind === "dots") {
      series.push({ stroke, paths: () => null, points: { show: true, size: 4, width: 0, fill: stroke } });
    } else {
      const paths = mark.kind === "step" ? uPlot.paths.stepped({ align: 1 }) : undefined;
      series.push({ stroke, width: 1.6, paths, points: { show: false } });
    }
    if (mark.kind === "band") {
      series.push({ points: { show: false } }, { points: { show: false } });
      bands.push({ series: [first + 2, first + 1], fill: () => variable(mark.colour) + "30" });
    }
  }
  if (tables.length) return { columns: tables.length > 1 ? uPlot.join(tables) : tables[0], series, bands, read };
  return { columns: [[axis.at(0), axis.at(data.right)], [null, null]], series: [{}, {}], bands, read };
}

function paintBoxes(u, marks) {
  u.ctx.save();
  for (const mark of marks) {
    const [from, to] = [mark.from, mark.to].map((x) => Math.max(u.bbox.left, Math.min(u.bbox.left + u.bbox.width, u.valToPos(x, "x", true))));
    const [low, high] = [mark.at[2], mark.at[3]].map((y) => u.valToPos(y, "y", true));
    u.ctx.globalAlpha = ALPHA[mark.colour] || 0.85;
    u.ctx.fillStyle = variable(mark.colour);
    if (mark.to >= u.scales.x.min && mark.from <= u.scales.x.max) u.ctx.fillRect(from, high, Math.max(to - from, 1), low - high);
  }
  u.ctx.restore();
}

// Moments are dashed lines over the whole height, ticks small triangles on the lower edge.
function paintMoments(u, marks) {
  const bottom = u.bbox.top + u.bbox.height, size = 5 * devicePixelRatio;
  u.ctx.save();
  u.ctx.setLineDash([4, 4]);
  for (const mark of marks) {
    u.ctx.strokeStyle = u.ctx.fillStyle = variable(mark.colour);
    u.ctx.beginPath();
    for (const x of mark.places.filter((one) => one >= u.scales.x.min && one <= u.scales.x.max)) {
      const left = u.valToPos(x, "x", true);
      if (mark.kind === "ticks") {
        u.ctx.moveTo(left - size, bottom);
        u.ctx.lineTo(left, bottom - 2 * size);
        u.ctx.lineTo(left + size, bottom);
      } else {
        u.ctx.moveTo(left, u.bbox.top);
        u.ctx.lineTo(left, bottom);
      }
    }
    if (mark.kind === "ticks") u.ctx.fill();
    else u.ctx.stroke();
  }
  u.ctx.restore();
}

// What lies under the pointer, in words: each series, then boxes and moments.
function reading(u, chart) {
  const x = u.posToVal(u.cursor.left, "x"), words = [chart.axis.dated ? iso(x).slice(0, 19) : +x.toPrecision(4) + " " + chart.axis.name];
  for (const [k, name] of chart.read) {
    let at = u.cursor.idx;
    while (at > 0 && u.data[k][at] === undefined) at -= 1; // columns are joined: the last value at or before
    const value = at === null ? null : u.data[k][at];
    if (value !== null && value !== undefined) words.push(`${name} ${value.toLocaleString("en", { maximumSignificantDigits: 5 })} ${chart.data.unit}`);
  }
  chart.boxes.filter((box) => box.from <= x && x < box.to).forEach((box) => words.push(box.name));
  const near = (mark) => mark.places.some((place) => Math.abs(u.valToPos(place, "x") - u.cursor.left) < 4);
  chart.moments.filter(near).forEach((mark) => words.push(mark.name));
  return words.join(" · ");
}

function show(range, group) {
  if (group === "time") zoom = range;
  for (const chart of built.filter((one) => one.axis.group === group)) {
    const [min, max] = range || chart.ends;
    if (chart.u.scales.x.min !== min || chart.u.scales.x.max !== max) chart.u.setScale("x", { min, max });
  }
}

function options(chart, parts) {
  const { data, axis, figure, ends } = chart, stroke = () => variable("soft"), grid = { stroke: () => variable("grid"), width: 1 };
  const font = "11px system-ui, sans-serif", small = figure.classList.contains("small");
  return {
    width: chart.host.clientWidth, height: small ? 165 : 250, legend: { show: false }, series: parts.series, bands: parts.bands,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"), padding: [8, 20, 0, 0],
    scales: { x: { time: axis.dated, min: ends[0], max: ends[1] }, y: { range: [data.low, data.top] } },
    axes: [
      { stroke, font, grid, ticks: grid, space: small ? 62 : 80, values: axis.dated ? dates : figures, size: axis.dated ? 40 : 34, label: axis.dated ? undefined : axis.name, labelSize: 16, labelFont: font },
      { stroke, font, grid, ticks: grid, space: 32, size: 52, values: figures },
    ],
    cursor: {
      y: false, points: { size: 6 }, drag: { x: true, y: false },
      sync: { key: axis.group, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      bind: { dblclick: () => () => show(null, axis.group) },
    },
    hooks: {
      drawClear: [(u) => paintBoxes(u, chart.boxes)],
      draw: [(u) => paintMoments(u, chart.moments)],
      setCursor: [(u) => (chart.out.textContent = u.cursor.left >= 0 ? reading(u, chart) : "")],
      setScale: [(u, key) => key === "x" && chart.u && show([u.scales.x.min, u.scales.x.max], axis.group)],
    },
  };
}

function build(figure) {
  const data = json(figure.querySelector("script")), axis = axisOf(data), parts = seriesOf(data, axis);
  const chart = { figure, data, axis, read: parts.read, host: figure.querySelector(".live"), out: figure.querySelector(".read") };
  chart.ends = [axis.at(0), axis.at(data.right)];
  chart.boxes = data.marks.filter((one) => one.kind === "box").map((one) => ({ ...one, from: axis.at(one.at[0]), to: axis.at(one.at[1]) }));
  chart.moments = data.marks.filter((one) => one.kind === "moments" || one.kind === "ticks").map((one) => ({ ...one, places: one.at.map(axis.at) }));
  chart.u = new uPlot(options(chart, parts), parts.columns, chart.host);
  built.push(chart);
  if (axis.group === "time" && zoom) chart.u.setScale("x", { min: zoom[0], max: zoom[1] });
  chart.host.addEventListener("keydown", (event) => steer(event, chart));
  new ResizeObserver(() => resize(chart)).observe(chart.host);
}

function resize(chart) {
  const width = chart.host.clientWidth;
  if (width && width !== chart.u.width) chart.u.setSize({ width, height: chart.u.height });
}

// Arrow keys read values, + and - zoom around the reading, Escape shows everything.
function steer(event, chart) {
  const { u } = chart, { min, max } = u.scales.x, wide = u.over.clientWidth;
  const left = u.cursor.left >= 0 ? u.cursor.left : wide / 2, at = u.posToVal(left, "x");
  const near = (factor) => show([Math.max(chart.ends[0], at - (at - min) * factor), Math.min(chart.ends[1], at + (max - at) * factor)], chart.axis.group);
  const move = (by) => u.setCursor({ left: Math.max(0, Math.min(wide - 1, left + by)), top: u.over.clientHeight / 2 });
  const keys = { ArrowLeft: () => move(-wide / 50), ArrowRight: () => move(wide / 50), "+": () => near(0.5), "-": () => near(2), Escape: () => show(null, chart.axis.group) };
  if (!keys[event.key]) return;
  event.preventDefault();
  chart.out.setAttribute("aria-live", "polite");
  keys[event.key]();
}

const charts = all("figure.chart:not(.still)");
const coming = new IntersectionObserver((seen) => {
  for (const { target } of seen.filter((one) => one.isIntersecting)) {
    coming.unobserve(target);
    build(target);
  }
}, { rootMargin: "500px" });
charts.forEach((figure) => coming.observe(figure));
const repaint = () => built.forEach((chart) => chart.u.redraw(false, true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

// On paper everything that is not folded away is drawn, in light colours and as wide as the sheet.
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("print");
  charts.filter((figure) => figure.offsetParent && !built.some((one) => one.figure === figure)).forEach((figure) => { coming.unobserve(figure); build(figure); });
  built.forEach(resize);
  repaint();
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("print");
  built.forEach(resize);
  repaint();
});

// The table of decisions: a filter by words and kind, and one open row at a time.
function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function opened([facts, compared, count], plans, width) {
  const list = element("dl", "", ...facts.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  const cell = element("td", "", list), row = element("tr", "", cell);
  cell.colSpan = width;
  row.className = "opened";
  if (!compared.length) return row;
  const heads = [`compared (${compared.length} of ${count})`, "score", "iteration, s", "utilisation", "egress, USD"];
  const head = element("tr", "", ...heads.map((one) => element("th", one)));
  const lines = compared.map(([plan, ...rest]) => element("tr", "", element("td", plans[plan]), ...rest.map((one) => element("td", one))));
  cell.append(element("div", "", element("table", "", element("thead", "", head), element("tbody", "", ...lines))));
  return row;
}

function decisions(table) {
  const { plans, rows: details } = json(document.getElementById("decision-data")), rows = all("tbody tr", table);
  const words = rows.map((row) => row.textContent.toLowerCase());
  const search = document.getElementById("decision-search"), kind = document.getElementById("decision-kind");
  const close = () => {
    all(".opened", table).forEach((row) => row.remove());
    all("[aria-expanded=true]", table).forEach((button) => button.setAttribute("aria-expanded", "false"));
  };
  const filter = () => {
    close();
    const wanted = search.value.trim().toLowerCase();
    rows.forEach((row, k) => (row.hidden = (kind.value && !row.classList.contains(kind.value)) || !words[k].includes(wanted)));
    document.getElementById("decision-count").textContent = `${rows.filter((row) => !row.hidden).length} shown`;
  };
  const toggle = (row, k) => {
    const button = row.querySelector("button"), open = button.getAttribute("aria-expanded") === "true";
    close();
    if (open) return;
    button.setAttribute("aria-expanded", "true");
    row.after(opened(details[k], plans, row.cells.length));
  };
  rows.forEach((row, k) => row.addEventListener("click", () => toggle(row, k)));
  search.addEventListener("input", filter);
  kind.addEventListener("input", filter);
}

all("#decision-table").forEach(decisions);

// The table of contents marks the section that is being read.
const current = new IntersectionObserver((seen) => {
  for (const { target } of seen.filter((one) => one.isIntersecting)) {
    all("nav a").forEach((link) => link.toggleAttribute("aria-current", link.hash === "#" + target.id));
  }
}, { rootMargin: "-10% 0px -80% 0px" });
all("main section").forEach((part) => current.observe(part));
