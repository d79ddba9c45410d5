"use strict";

const report = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const { labels: COLOURS, pale: PALE, inside: INSIDE, outside: OUTSIDE, phases: PHASE_COLOURS } = report.colours;
const IN_A_ROW = 6.6; // pixels of a digit, about

// numbers and words

function text(value, digits = 5) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const told = size !== 0 && (size >= 1e7 || size < 1e-4)
    ? value.toExponential(Math.max(digits - 2, 0)).replace(/\.?0+e/, "e").replace("e+", "e")
    : String(Number(value.toPrecision(Math.max(digits, Math.ceil(Math.log10(size + 1))))));
  return told.replace("-", "−").replace("e-", "e−");
}

function capped(values, share) { // the ends of finite values, with a margin
  let low = Infinity, high = -Infinity;
  for (const value of values) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return [0, 1];
  const margin = share * (high - low) || Math.abs(low) * 0.1 || 1;
  return [low - margin, high + margin];
}

// elements

function add(parent, name, attributes = {}, words = null) {
  const svg = parent.namespaceURI === "http://www.w3.org/2000/svg" || name === "svg";
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (words !== null) made.textContent = words;
  parent.append(made);
  return made;
}

function legend(figure, entries, shape, onclick = null) {
  const box = add(figure, "div", { class: "legend" });
  figure.insertBefore(box, figure.querySelector(".plot"));
  entries.forEach(([name, colour], index) => {
    const entry = add(box, onclick ? "button" : "span", onclick ? { type: "button", "aria-pressed": "true" } : {});
    const mark = add(entry, "i", { class: shape });
    mark.style.background = mark.style.borderColor = colour;
    entry.append(name);
    if (onclick) entry.addEventListener("click", () => onclick(index, box));
  });
}

function show(event, words) {
  tip.textContent = words ?? "";
  tip.style.display = words ? "block" : "none";
  if (!words) return;
  const left = event.clientX + 14, top = event.clientY + 14;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 6))}px`;
  tip.style.top = `${top + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : top}px`;
}

const drawn = []; // functions that draw a figure anew
for (const [event, printing] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => { // the paper's width is told by the style sheet, where the window's would make small print
    document.documentElement.classList.toggle("printing", printing);
    drawn.forEach((redraw) => redraw());
  });
}

/** Draw a figure now, and again when its width changes; `draw` returns what says words, or nothing, of a point (x, y). */
function live(id, draw) {
  const figure = document.getElementById(id);
  if (!figure) return null;
  const holder = add(figure, "div", { class: "plot" });
  let width = 0, hover = () => null;
  const redraw = () => {
    width = holder.clientWidth;
    holder.replaceChildren();
    if (width > 40) hover = draw(holder, width) ?? (() => null);
  };
  new ResizeObserver(() => { if (Math.abs(holder.clientWidth - width) > 1) redraw(); }).observe(holder);
  drawn.push(redraw);
  const look = (event) => {
    const box = holder.getBoundingClientRect();
    show(event, hover(event.clientX - box.left, event.clientY - box.top));
  };
  holder.addEventListener("pointermove", look);
  holder.addEventListener("pointerdown", look);
  holder.addEventListener("pointerleave", (event) => { hover(-1e9, -1e9); show(event, null); });
  redraw();
  return redraw;
}

// axes

function ticks([low, high], wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const top = Math.max(Math.abs(low), Math.abs(high));
  const name = (value) => {
    if (top >= 1e7 || top < 1e-3) return text(Number(value.toPrecision(6)), 4);
    return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
  };
  return found.map((value) => [value, name(Math.abs(value) < step * 1e-9 ? 0 : value)]);
}

function logTicks([low, high]) { // of logarithms
  const first = Math.ceil(low), count = Math.floor(high) - first;
  const step = Math.max(1, Math.ceil(count / 6)), found = [];
  for (let k = first; k <= high; k += step) found.push([k, Math.abs(k) <= 3 ? text(10 ** k) : `1e${k}`.replace("-", "−")]);
  return found.length > 1 ? found : ticks([low, high], 3).map(([value]) => [value, text(10 ** value, 2)]);
}

/** An SVG with axes; x and y are { label, range, log, names }. Returns the SVG, the frame, and the scales. */
function axes(holder, width, height, x, y) {
  const yTicks = y.names ?? (y.log ? logTicks(y.range) : ticks(y.range, height / 46));
  const left = Math.ceil(Math.max(...yTicks.map(([, name]) => name.length), 1) * IN_A_ROW) + (y.label ? 28 : 12);
  const frame = { left, top: 8, right: width - 24, bottom: height - (x.label ? 40 : 22) };
  const svg = add(holder, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y.label} against ${x.label}` });
  const scale = ([low, high], from, to) => (value) => from + ((value - low) / (high - low)) * (to - from);
  const sx = scale(x.range, frame.left, frame.right), sy = scale(y.range, frame.bottom, frame.top);
  for (const [value, name] of x.names ?? ticks(x.range, Math.max((frame.right - frame.left) / 80, 2))) {
    if (!x.plain) add(svg, "line", { class: "rule", x1: sx(value), x2: sx(value), y1: frame.top, y2: frame.bottom });
    add(svg, "text", { x: sx(value), y: frame.bottom + 16, "text-anchor": "middle" }, name);
  }
  for (const [value, name] of yTicks) {
    if (!y.plain) add(svg, "line", { class: "rule", x1: frame.left, x2: frame.right, y1: sy(value), y2: sy(value) });
    add(svg, "text", { x: frame.left - 6, y: sy(value) + 4, "text-anchor": "end" }, name);
  }
  add(svg, "line", { class: "frame", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom });
  if (x.label) add(svg, "text", { class: "title", x: (frame.left + frame.right) / 2, y: height - 6, "text-anchor": "middle" }, x.label);
  if (y.label) add(svg, "text", { class: "title", "text-anchor": "middle", transform: `translate(12 ${(frame.top + frame.bottom) / 2}) rotate(-90)` }, y.label);
  const clip = `clip${(axes.count = (axes.count ?? 0) + 1)}`;
  add(add(svg, "clipPath", { id: clip }), "rect", { x: frame.left, y: frame.top, width: frame.right - frame.left, height: frame.bottom - frame.top });
  return { svg, inner: add(svg, "g", { "clip-path": `url(#${clip})` }), frame, sx, sy, width, height };
}

/** A canvas over the frame of some axes, in the SVG's pixels, that scales with it. */
function canvas(holder, { frame, width, height }) {
  const made = add(holder, "canvas"), sharp = Math.max(2, devicePixelRatio);
  const wide = frame.right - frame.left, high = frame.bottom - frame.top;
  made.width = wide * sharp;
  made.height = high * sharp;
  made.style.cssText = `left:${(100 * frame.left) / width}%;top:${(100 * frame.top) / height}%;width:${(100 * wide) / width}%;height:${(100 * high) / height}%`;
  const pen = made.getContext("2d");
  pen.setTransform(sharp, 0, 0, sharp, -frame.left * sharp, -frame.top * sharp);
  return pen;
}

function path(xs, ys, sx, sy) {
  let words = "", gap = true;
  xs.forEach((x, k) => {
    if (x === null || ys[k] === null || !Number.isFinite(ys[k])) { gap = true; return; }
    words += `${gap ? "M" : "L"}${sx(x).toFixed(1)} ${sy(ys[k]).toFixed(1)}`;
    gap = false;
  });
  return words;
}

function nearest(count, distance, within) {
  let best = -1, least = within * within;
  for (let k = 0; k < count; k++) {
    const far = distance(k);
    if (far < least) { least = far; best = k; }
  }
  return best;
}

/** A spot that marks what the pointer is at. */
function spot(plot) {
  const circle = add(plot.svg, "circle", { class: "spot", r: 4.5, display: "none" });
  return (x, y) => {
    if (x === undefined) { circle.setAttribute("display", "none"); return; }
    for (const [key, value] of [["cx", x], ["cy", y], ["display", "inline"]]) circle.setAttribute(key, value);
  };
}

// figures

const PERCENT = [0, 0.25, 0.5, 0.75, 1].map((value) => [value, `${100 * value} %`]);

const low = (width) => Math.round(Math.min(260, Math.max(190, width * 0.52))); // the height of a small figure

function line(id, { xs, ys, x, y, words }) {
  live(id, (holder, width) => {
    const plot = axes(holder, width, low(width), x, y);
    const values = y.log ? ys.map((value) => (value > 0 ? Math.log10(value) : null)) : ys;
    add(plot.inner, "path", { class: "curve", d: path(xs, values, plot.sx, plot.sy) });
    const mark = spot(plot);
    return (px) => {
      const k = nearest(xs.length, (each) => (plot.sx(xs[each]) - px) ** 2, 40);
      if (k < 0 || values[k] === null) { mark(); return null; }
      const high = plot.sy(values[k]);
      mark(plot.sx(xs[k]), Math.min(high, plot.frame.bottom));
      return words(k);
    };
  });
}

/** Curves over one another, of { name, colour, xs, ys, dashed, dots }; `words` tells what is at each of the `places`. */
function curves(id, { series, places, x, y, words, within = 40 }) {
  live(id, (holder, width) => {
    const plot = axes(holder, width, low(width), typeof x === "function" ? x(width) : x, y);
    for (const { xs, ys, colour, dashed, dots } of series) {
      add(plot.inner, "path", { class: dashed ? "dashed" : "curve", d: path(xs, ys, plot.sx, plot.sy), style: `stroke:${colour}` });
      if (dots) xs.forEach((each, k) => add(plot.inner, "circle", { cx: plot.sx(each), cy: plot.sy(ys[k]), r: 3.5, fill: colour }));
    }
    return (px) => {
      const k = nearest(places.length, (each) => (plot.sx(places[each]) - px) ** 2, within);
      return k < 0 ? null : words(k);
    };
  });
  legend(document.getElementById(id), series.map(({ name, colour }) => [name, colour]), "rule");
}

