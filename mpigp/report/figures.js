"use strict";

// Draws the panels that figures.py describes, each in the <figure> of its name.

const report = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const DIGIT = 6.6; // pixels of a digit, about
const SCALES = { log2: Math.log2, log10: Math.log10 };
const UNITS = { "%": 100, ms: 1000 };

// values and texts

function number(value, digits = 5) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const words = size !== 0 && (size >= 1e7 || size < 1e-4)
    ? value.toExponential(Math.max(digits - 2, 0)).replace(/\.?0+e/, "e").replace("e+", "e")
    : String(Number(value.toPrecision(Math.max(digits, Math.ceil(Math.log10(size + 1))))));
  return words.replace("-", "−").replace("e-", "e−");
}

const choose = (template) => template.replace(/@(\w+)/g, (_, id) => document.getElementById(id)?.value ?? 0);

const column = (path) => choose(path).split(".").reduce((value, key) => value[key], report);

/** The text of a template, for place k of the columns that it refers to. */
function fill(template, k = 0) {
  return choose(template).replace(/\{([^}|:]+)\|?([^}:]*):?(\d*)(%|ms)?\}/g, (_, path, names, digits, unit) => {
    let value = column(path);
    if (Array.isArray(value)) value = value[k];
    if (names) return column(names)[value];
    if (!digits) return Number.isInteger(value) ? value.toLocaleString("en") : value;
    return number(value === null ? null : value * (UNITS[unit] ?? 1), Number(digits)) + (unit ? ` ${unit}` : "");
  });
}

/** A column as places along an axis: null where there is none. */
function places(path, { scale }) {
  return column(path).map((value) => (value === null || (scale && value <= 0) ? null : scale ? SCALES[scale](value) : value));
}

/** The ends of an axis: those that are given, or those of what is drawn, with a margin. */
function ends(panel, which) {
  const axis = panel[which], { lines = [], points } = panel;
  if (axis.range) return axis.scale ? axis.range.map(SCALES[axis.scale]) : axis.range;
  const values = lines.flatMap((line) => {
    const middle = places(line[which], axis), bands = which === "y" ? line.bands ?? [] : [];
    return [...middle, ...bands.flatMap((path) => column(path).flatMap((sd, k) => [middle[k] - 2 * sd, middle[k] + 2 * sd]))];
  });
  if (points) {
    const sd = points[`sd_${which}`] ? column(points[`sd_${which}`]) : [];
    const bar = points.sd_x ? null : 2 * ([...sd].sort((a, b) => a - b)[sd.length >> 1] ?? 0); // there is room for most bars
    values.push(...column(points[which]).flatMap((value, k) => [value - (bar ?? sd[k] ?? 0), value + (bar ?? sd[k] ?? 0)]));
  }
  let low = axis.zero ? 0 : Infinity, high = -Infinity;
  for (const value of values) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return [0, 1];
  const margin = 0.02 * (high - low) || Math.abs(low) * 0.1 || 1;
  return [low - margin, high + margin];
}

// elements

const set = (element, attributes) => Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));

function add(parent, name, attributes = {}, words = "") {
  const made = document.createElementNS(name === "svg" ? "http://www.w3.org/2000/svg" : parent.namespaceURI, name);
  set(made, attributes);
  made.textContent = words;
  parent.append(made);
  return made;
}

/** The names of a panel's lines, bars or groups of points; where they toggle, `hidden` has the groups that do not show. */
function legend(figure, { lines, bars, points }, hidden, redraw) {
  const named = points ? (points.names ?? []).map((name, k) => ({ name, color: points.colors[k] })) : (lines ?? bars).filter(({ name }) => name);
  if (!named.length) return;
  const box = add(figure, "div", { class: "legend" }), shape = points ? "" : lines ? "rule" : "square", toggle = points?.toggle;
  named.forEach(({ name, color }, index) => {
    const entry = add(box, toggle ? "button" : "span", toggle ? { type: "button", "aria-pressed": "true" } : {});
    add(entry, "i", { class: shape, style: `background:${color};border-color:${color}` });
    entry.append(name);
    if (!toggle) return;
    entry.addEventListener("click", () => { // the first click shows one group alone; others join or leave it
      if (!hidden.size) named.forEach((_, k) => { if (k !== index) hidden.add(k); });
      else if (!hidden.delete(index)) hidden.add(index);
      if (hidden.size === named.length) hidden.clear();
      [...box.children].forEach((button, k) => button.setAttribute("aria-pressed", String(!hidden.has(k))));
      redraw();
    });
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

// axes

function linearTicks([low, high], wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power, values = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) values.push(k * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), top = Math.max(Math.abs(low), Math.abs(high));
  const name = (value) => (top >= 1e7 || top < 1e-3 ? number(Number(value.toPrecision(6)), 4)
    : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−"));
  return values.map((value) => [value, name(Math.abs(value) < step * 1e-9 ? 0 : value)]);
}

function logTicks([low, high]) { // of decimal logarithms
  const first = Math.ceil(low), step = Math.max(1, Math.ceil((Math.floor(high) - first) / 6)), made = [];
  for (let k = first; k <= high; k += step) made.push([k, Math.abs(k) <= 3 ? number(10 ** k) : `1e${k}`.replace("-", "−")]);
  return made.length > 1 ? made : linearTicks([low, high], 3).map(([value]) => [value, number(10 ** value, 2)]);
}

/** The ticks of an axis: as many as have room where `room` is the pixels between two ends, `need` those of a text. */
function ticks({ ticks: given, scale }, range, room, need) {
  if (!given) return scale ? logTicks(range) : linearTicks(range, Math.max(room / need(null), 2));
  const shown = [], pixels = room / Math.abs(range[1] - range[0]);
  for (const [value, name] of given) {
    const at = scale ? SCALES[scale](value) : value, [last, before] = shown.at(-1) ?? [-Infinity, ""];
    if (Math.abs(at - last) * pixels >= (need(name) + need(before)) / 2) shown.push([at, name]);
  }
  return shown;
}

/** An SVG with the axes of a panel. Returns the SVG, the clipped inner part, the frame and the scales. */
function axes(holder, panel, width, height) {
  const { x, y } = panel, xRange = ends(panel, "x"), yRange = ends(panel, "y");
  const yTicks = ticks(y, yRange, height - 48, (name) => (name === null ? 46 : 15));
  const left = Math.ceil(Math.max(...yTicks.map(([, name]) => name.length), 1) * DIGIT) + 28;
  const frame = { left, top: 8, right: width - 24, bottom: height - 40 };
  const xTicks = ticks(x, xRange, frame.right - left, (name) => (name === null ? 80 : name.length * DIGIT + 6));
  const label = { x: fill(x.label), y: fill(y.label) };
  const svg = add(holder, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label.y} against ${label.x}` });
  const scale = ([low, high], from, to) => (value) => from + ((value - low) / (high - low)) * (to - from);
  const sx = scale(xRange, frame.left, frame.right), sy = scale(yRange, frame.bottom, frame.top);
  for (const [value, name] of xTicks) {
    if (!panel.bars || panel.horizontal) add(svg, "line", { class: "rule", x1: sx(value), x2: sx(value), y1: frame.top, y2: frame.bottom });
    add(svg, "text", { x: sx(value), y: frame.bottom + 16, "text-anchor": "middle" }, name);
  }
  for (const [value, name] of yTicks) {
    if (!panel.horizontal) add(svg, "line", { class: "rule", x1: frame.left, x2: frame.right, y1: sy(value), y2: sy(value) });
    add(svg, "text", { x: frame.left - 6, y: sy(value) + 4, "text-anchor": "end" }, name);
  }
  add(svg, "line", { class: "frame", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom });
  add(svg, "text", { class: "title", x: (frame.left + frame.right) / 2, y: height - 6, "text-anchor": "middle" }, label.x);
  add(svg, "text", { class: "title", "text-anchor": "middle", transform: `translate(12 ${(frame.top + frame.bottom) / 2}) rotate(-90)` }, label.y);
  add(add(svg, "clipPath", { id: `clip-${panel.name}` }), "rect", { x: frame.left, y: frame.top, width: frame.right - frame.left, height: frame.bottom - frame.top });
  return { svg, inner: add(svg, "g", { "clip-path": `url(#clip-${panel.name})` }), frame, sx, sy, width, height };
}

// Marks. Each function returns where the pointer may look for them: targets [x, y, k] in pixels, the weights of the
// two directions in the distance to them, and the largest distance.

function drawLines(panel, { inner, frame, sx, sy }) {
  const path = (xs, ys) => xs.map((x, k) => (x === null || ys[k] === null ? " "
    : `${k && xs[k - 1] !== null && ys[k - 1] !== null ? "L" : "M"}${sx(x).toFixed(1)} ${sy(ys[k]).toFixed(1)}`)).join("");
  let targets = null;
  for (const line of panel.lines) {
    const xs = places(line.x, panel.x), ys = places(line.y, panel.y);
    (line.bands ?? []).forEach((band, k) => {
      const sd = column(band), edge = (sign) => path(xs, ys.map((y, place) => y + sign * 2 * sd[place]));
      const back = edge(-1).split(/(?=[ML])/).reverse().map((step) => `L${step.slice(1)}`).join("");
      add(inner, "path", { class: k ? "band inner" : "band", d: `${edge(1)}${back}Z` });
    });
    add(inner, "path", { class: line.dashed ? "dashed" : "curve", d: path(xs, ys), style: line.color ? `stroke:${line.color}` : "" });
    if (line.dots) xs.forEach((x, k) => add(inner, "circle", { cx: sx(x), cy: sy(ys[k]), r: 3.5, fill: line.color }));
    targets ??= xs.flatMap((x, k) => (x === null || ys[k] === null ? [] : [[sx(x), Math.min(sy(ys[k]), frame.bottom), k]]));
  }
  return { targets, weights: [1, 0], within: 40 };
}

function drawBars(panel, { inner, frame, sx, sy }) {
  const parts = panel.bars.map(({ y }) => column(y)), marked = panel.marked?.map((id) => Number(choose(`@${id}`)));
  const step = panel.horizontal ? sy(1) - sy(0) : sx(1) - sx(0), half = Math.min(40, step > 6 ? 0.75 * step : step) / 2;
  const targets = parts[0].map((_, k) => {
    const total = panel.shares ? parts.reduce((sum, part) => sum + part[k], 0) || 1 : 1;
    let before = 0;
    parts.forEach((part, index) => {
      const { name = "", color } = panel.bars[index], share = part[k] / total, start = before;
      before += share;
      const [x, y, width, height] = panel.horizontal
        ? [sx(start), sy(k) - half, sx(before) - sx(start), 2 * half]
        : [sx(k) - half, Math.min(sy(before), frame.bottom - (color ? 0 : 1)), 2 * half, Math.max(sy(start) - sy(before), color ? 0 : 1)];
      const look = color ? { fill: color, "data-share": share, "data-name": name } : { class: !marked || marked.includes(k) ? "bar chosen" : "bar" };
      add(inner, "rect", { x, y, width, height, ...look });
    });
    return [sx(k), sy(k), k];
  });
  return { targets, weights: panel.horizontal ? [0, 1] : [1, 0], within: Math.max(step / 2, 1) };
}

function drawPoints({ points }, { frame, sx, sy, width, height }, holder, hidden) {
  // a canvas over the frame of the axes, in the SVG's pixels, that scales with it
  const sharp = Math.max(2, devicePixelRatio), wide = frame.right - frame.left, high = frame.bottom - frame.top;
  const style = `left:${(100 * frame.left) / width}%;top:${(100 * frame.top) / height}%;width:${(100 * wide) / width}%;height:${(100 * high) / height}%`;
  const pen = add(holder, "canvas", { width: Math.floor(wide * sharp), height: Math.floor(high * sharp), style }).getContext("2d");
  pen.setTransform(sharp, 0, 0, sharp, -frame.left * sharp, -frame.top * sharp);
  const last = points.colors.length - 1;
  const [xs, ys, sdX, sdY, group] = [points.x, points.y, points.sd_x, points.sd_y, points.group].map((path) => path && column(path));
  const by = (few, some, many) => (xs.length > 1500 ? many : xs.length > 300 ? some : few);
  const groupOf = (k) => Math.min(group?.[k] ?? 0, last);
  const shown = xs.map((_, k) => k).filter((k) => !hidden.has(groupOf(k)));
  const each = (alpha, trace) => {
    pen.globalAlpha = alpha;
    for (const k of shown) {
      pen.fillStyle = pen.strokeStyle = points.colors[groupOf(k)];
      pen.beginPath();
      trace(k);
    }
  };
  const unsure = holder.parentElement.querySelector("input[type=checkbox]")?.checked ?? true;
  if (sdX && unsure) {
    const unitX = sx(1) - sx(0), unitY = sy(0) - sy(1);
    each(by(0.2, 0.1, 0.03), (k) => {
      pen.ellipse(sx(xs[k]), sy(ys[k]), Math.max(sdX[k] * unitX, 0.5), Math.max((sdY?.[k] ?? 0) * unitY, 0.5), 0, 0, 7);
      pen.fill();
    });
  } else if (sdY && !sdX) {
    each(by(0.45, 0.2, 0.08), (k) => {
      pen.moveTo(sx(xs[k]), sy(ys[k] - 2 * sdY[k]));
      pen.lineTo(sx(xs[k]), sy(ys[k] + 2 * sdY[k]));
      pen.stroke();
    });
  }
  each(0.85, (k) => { pen.arc(sx(xs[k]), sy(ys[k]), by(3.4, 2.5, 1.8), 0, 7); pen.fill(); });
  return { targets: shown.map((k) => [sx(xs[k]), sy(ys[k]), k]), weights: [1, 1], within: 18 };
}

// panels

const clamp = (low, value, high) => Math.round(Math.min(high, Math.max(low, value)));

function heightOf(panel, width) {
  if (!panel.horizontal) return panel.tall ? clamp(300, 0.68 * width, 530) : clamp(190, 0.52 * width, 260);
  const count = column(panel.bars[0].y).length;
  return 52 + Math.max(60, Math.min(26, Math.max(2, 360 / count)) * count);
}

/** Draw a panel; return a function that marks what is at a point (x, y), and returns a text on it, or null. */
function draw(holder, panel, hidden) {
  const width = holder.clientWidth, plot = axes(holder, panel, width, heightOf(panel, width));
  let marks = panel.bars ? drawBars(panel, plot) : panel.lines && drawLines(panel, plot);
  if (panel.points) marks = drawPoints(panel, plot, holder, hidden);
  const spot = add(plot.svg, "circle", { class: "spot", r: 4.5, display: "none" });
  return (px, py) => {
    let best = null, least = marks.within ** 2;
    for (const target of px < plot.frame.left ? [] : marks.targets) {
      const far = marks.weights[0] * (target[0] - px) ** 2 + marks.weights[1] * (target[1] - py) ** 2;
      if (far < least) { least = far; best = target; }
    }
    if (!panel.bars) spot.setAttribute("display", best ? "inline" : "none");
    if (!best) return null;
    set(spot, { cx: best[0], cy: best[1] });
    return fill(panel.hover.join("\n"), best[2]);
  };
}

/** Draw a panel in its figure, now and when its width changes; return a function that draws it anew. */
function live(panel) {
  const figure = document.getElementById(panel.name), hidden = new Set();
  let width = 0, hover = () => null;
  const redraw = () => {
    width = holder.clientWidth;
    holder.replaceChildren();
    if (width > 40) hover = draw(holder, panel, hidden);
  };
  legend(figure, panel, hidden, redraw);
  const holder = add(figure, "div", { class: "plot" });
  new ResizeObserver(() => { if (Math.abs(holder.clientWidth - width) > 1) redraw(); }).observe(holder);
  const look = (event) => {
    const box = holder.getBoundingClientRect();
    show(event, hover(event.clientX - box.left, event.clientY - box.top));
  };
  for (const event of ["pointermove", "pointerdown"]) holder.addEventListener(event, look);
  holder.addEventListener("pointerleave", (event) => { hover(-1e9, -1e9); show(event, null); });
  redraw();
  return redraw;
}

const redraws = report.panels.map(live), redrawAll = () => redraws.forEach((redraw) => redraw());
document.querySelectorAll(".controls :is(select, input)").forEach((control) => control.addEventListener("change", redrawAll));
for (const [event, printing] of [["beforeprint", true], ["afterprint", false]]) {
  addEventListener(event, () => { // the style sheet gives the width of the paper, where the window's would make small print
    document.documentElement.classList.toggle("printing", printing);
    redrawAll();
  });
}
