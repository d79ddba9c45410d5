function learning() {
  const { iteration, bound, gradient_norm, seconds, frame } = report.learning;
  if (!iteration.length) return;
  const words = (k) => `iteration ${iteration[k].toLocaleString("en")}\nbound ${text(bound[k], 8)}\ngradient norm ${text(gradient_norm[k])}\n${text(seconds[k])} s`;
  const y = { label: "bound, nats", range: frame };
  line("bound-iterations", { xs: iteration, ys: bound, x: { label: "iteration", range: capped(iteration, 0.01) }, y, words });
  line("bound-seconds", { xs: seconds, ys: bound, x: { label: "seconds", range: capped([0, ...seconds], 0.01) }, y, words });
  const norms = gradient_norm.filter((value) => value > 0).map(Math.log10);
  line("gradient", { xs: iteration, ys: gradient_norm, x: { label: "iteration", range: capped(iteration, 0.01) },
    y: { label: "gradient norm", range: capped(norms, 0.04), log: true }, words });
}

function weights(chosen) {
  const { alpha } = report, most = Math.max(...alpha) || 1, names = report.predictions?.x_names;
  return live("ard", (holder, width) => {
    const every = Math.max(1, Math.ceil((alpha.length * 22) / (width - 60)));
    const numbers = alpha.map((_, k) => [k, String(k)]).filter(([k]) => k % every === 0);
    const plot = axes(holder, width, low(width),
      { label: report.latent ? "latent dimension" : "input", range: [-0.6, alpha.length - 0.4], names: numbers, plain: true },
      { label: "ARD weight α", range: [0, most * 1.06] });
    const thick = Math.min(46, (plot.sx(1) - plot.sx(0)) * 0.72), marked = chosen();
    alpha.forEach((value, k) => {
      const top = Math.min(plot.sy(value), plot.frame.bottom - 1);
      add(plot.inner, "rect", { class: marked.includes(k) ? "bar chosen" : "bar", x: plot.sx(k) - thick / 2, y: top, width: thick, height: plot.frame.bottom - top });
    });
    return (px) => {
      const k = Math.round((px - plot.sx(0)) / (plot.sx(1) - plot.sx(0)));
      return k in alpha && px >= plot.frame.left ? `${report.latent ? "dimension" : "input"} ${k}${names ? `, ${names[k]}` : ""}\nα = ${text(alpha[k])}\nlengthscale ${text(1 / Math.sqrt(alpha[k]))}` : null;
    };
  });
}

function latent() {
  const { rows, mu, sd } = report.latent, { labels } = report;
  const across = document.getElementById("across"), up = document.getElementById("up"), unsure = document.getElementById("unsure");
  const one = mu.length === 1;
  const off = new Set();
  const colours = labels ? labels.names.map((_, k) => COLOURS[k] ?? PALE) : [COLOURS[0]];
  const group = (k) => (labels ? Math.min(labels.values[k], COLOURS.length) : 0);
  const figure = document.getElementById("latent");

  const chosen = () => (one ? [0] : [Number(across.value), Number(up.value)]);
  const draw = (holder, width) => {
    const [a, b] = chosen(), height = Math.round(Math.min(540, Math.max(300, width * 0.7)));
    const ys = one ? rows : mu[b], zero = one ? rows.map(() => 0) : sd[b];
    const spread = (values, by) => capped([...values.map((value, k) => value - by[k]), ...values.map((value, k) => value + by[k])], 0.03);
    const name = (k) => `dimension ${k}`;
    const plot = axes(holder, width, height, { label: name(a), range: spread(mu[a], sd[a]) }, { label: one ? "row" : name(b), range: spread(ys, zero) });
    const pen = canvas(holder, plot), radius = rows.length > 1500 ? 1.9 : rows.length > 300 ? 2.6 : 3.6;
    const shown = rows.map((_, k) => k).filter((k) => !off.has(group(k)));
    const wide = plot.sx(1) - plot.sx(0), high = plot.sy(0) - plot.sy(1);
    if (unsure.checked) {
      pen.globalAlpha = rows.length > 1500 ? 0.03 : rows.length > 300 ? 0.1 : 0.2;
      for (const k of shown) {
        pen.fillStyle = colours[labels ? labels.values[k] : 0];
        pen.beginPath();
        pen.ellipse(plot.sx(mu[a][k]), plot.sy(ys[k]), Math.max(sd[a][k] * wide, 0.5), Math.max(zero[k] * high, 0.5), 0, 0, 7);
        pen.fill();
      }
    }
    pen.globalAlpha = 0.85;
    for (const k of shown) {
      pen.fillStyle = colours[labels ? labels.values[k] : 0];
      pen.beginPath();
      pen.arc(plot.sx(mu[a][k]), plot.sy(ys[k]), radius, 0, 7);
      pen.fill();
    }
    const mark = spot(plot);
    return (px, py) => {
      const at = nearest(shown.length, (each) => (plot.sx(mu[a][shown[each]]) - px) ** 2 + (plot.sy(ys[shown[each]]) - py) ** 2, 18);
      if (at < 0) { mark(); return null; }
      const k = shown[at];
      mark(plot.sx(mu[a][k]), plot.sy(ys[k]));
      const place = (dimension) => `\n${name(dimension)}: ${text(mu[dimension][k])} ± ${text(sd[dimension][k], 2)}`;
      return `row ${rows[k].toLocaleString("en")}${labels ? `\nlabel ${labels.names[labels.values[k]]}` : ""}${place(a)}${one ? "" : place(b)}`;
    };
  };
  const redraw = live("latent", draw);
  if (labels) {
    const entries = labels.names.slice(0, COLOURS.length).map((name, k) => [name, COLOURS[k]]);
    const rest = labels.names.length - entries.length;
    if (rest) entries.push([`${rest} more`, PALE]);
    legend(figure, entries, "", (index, box) => { // the first click shows one label alone; others join or leave it
      const all = entries.map((_, k) => k);
      if (!off.size) all.filter((k) => k !== index).forEach((k) => off.add(k));
      else if (off.has(index)) off.delete(index);
      else off.add(index);
      if (off.size === entries.length) off.clear();
      [...box.children].forEach((button, k) => button.setAttribute("aria-pressed", String(!off.has(k))));
      redraw();
    });
  }
  const bars = weights(chosen);
  for (const control of [across, up]) control?.addEventListener("change", () => { redraw(); bars?.(); });
  unsure.addEventListener("change", redraw);
}

function predictions() {
  const { rows, truth, mean, y_sd, x, x_names: [x_name], y_names, curve } = report.predictions;
  const output = document.getElementById("output");
    const redraw = live("predictions", (holder, width) => {
    const c = Number(output?.value ?? 0), t = truth[c], m = mean[c], s = y_sd[c];
    const height = Math.round(Math.min(520, Math.max(300, width * 0.66)));
    const xs = x ?? t, ys = x ? t : m;
    let plot;
    if (x) {
      const edges = (sign, by) => curve.mean[c].map((value, k) => value + sign * 2 * by[c][k]);
      plot = axes(holder, width, height, { label: x_name, range: capped(curve.x, 0) },
        { label: y_names[c], range: capped([...t, ...edges(1, curve.y_sd), ...edges(-1, curve.y_sd)], 0.03) });
      for (const [by, name] of [[curve.y_sd, "band"], [curve.f_sd, "band inner"]]) {
        const there = path(curve.x, edges(1, by), plot.sx, plot.sy), back = path([...curve.x].reverse(), edges(-1, by).reverse(), plot.sx, plot.sy);
        add(plot.inner, "path", { class: name, d: `${there}${back.replace("M", "L")}Z` });
      }
      add(plot.inner, "path", { class: "curve", d: path(curve.x, curve.mean[c], plot.sx, plot.sy) });
    } else {
      const bar = 2 * [...s].sort((a, b) => a - b)[s.length >> 1], range = capped(t, 0.04); // the frame has room for most bars
      plot = axes(holder, width, height, { label: `true ${y_names[c]}`, range },
        { label: `predicted ${y_names[c]}`, range: capped([Math.min(...m) - bar, Math.max(...m) + bar], 0.02) });
      add(plot.inner, "path", { class: "dashed", d: path(range, range, plot.sx, plot.sy) });
    }
    const pen = canvas(holder, plot), radius = rows.length > 1500 ? 1.7 : rows.length > 300 ? 2.4 : 3.2;
    const colour = (k) => (Math.abs(t[k] - m[k]) <= 2 * s[k] ? INSIDE : OUTSIDE);
    if (!x) {
      pen.globalAlpha = rows.length > 1500 ? 0.08 : rows.length > 300 ? 0.2 : 0.45;
      t.forEach((_, k) => {
        pen.strokeStyle = colour(k);
        pen.beginPath();
        pen.moveTo(plot.sx(xs[k]), plot.sy(m[k] - 2 * s[k]));
        pen.lineTo(plot.sx(xs[k]), plot.sy(m[k] + 2 * s[k]));
        pen.stroke();
      });
    }
    pen.globalAlpha = 0.8;
    t.forEach((_, k) => {
      pen.fillStyle = colour(k);
      pen.beginPath();
      pen.arc(plot.sx(xs[k]), plot.sy(ys[k]), radius, 0, 7);
      pen.fill();
    });
    const mark = spot(plot);
    return (px, py) => {
      const k = nearest(rows.length, (each) => (plot.sx(xs[each]) - px) ** 2 + (plot.sy(ys[each]) - py) ** 2, 18);
      if (k < 0) { mark(); return null; }
      mark(plot.sx(xs[k]), plot.sy(ys[k]));
      return `row ${rows[k].toLocaleString("en")}${x ? `\n${x_name}: ${text(x[k])}` : ""}\ntrue ${text(t[k])}\npredicted ${text(m[k])} ± ${text(2 * s[k], 3)}`;
    };
  });
  legend(document.getElementById("predictions"), [["within ±2σ", INSIDE], ["outside", OUTSIDE]], "");
  output?.addEventListener("change", redraw);
}

function calibration() {
  const { levels, coverage } = report.predictions;
  live("calibration", (holder, width) => {
    const percent = (width > 260 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1]).map((value) => [value, `${100 * value} %`]);
    const plot = axes(holder, width, low(width),
      { label: "interval should hold", range: [0, 1], names: percent }, { label: "holds", range: [0, 1], names: percent });
    add(plot.inner, "path", { class: "dashed", d: path([0, 1], [0, 1], plot.sx, plot.sy) });
    add(plot.inner, "path", { class: "curve", d: path([0, ...levels, 1], [0, ...coverage, 1], plot.sx, plot.sy) });
    const mark = spot(plot);
    return (px) => {
      const k = nearest(levels.length, (each) => (plot.sx(levels[each]) - px) ** 2, 30);
      if (k < 0) { mark(); return null; }
      mark(plot.sx(levels[k]), plot.sy(coverage[k]));
      return `the ${Math.round(100 * levels[k])} % interval\nholds ${text(100 * coverage[k], 3)} % of the rows`;
    };
  });
}

function timing() {
  const { names, ranks, seconds, rows } = report.timing;
  const totals = seconds.map((each) => each.reduce((sum, value) => sum + value, 0));
  live("timing", (holder, width) => {
    const thick = Math.max(2, Math.min(26, 360 / ranks.length)), height = 52 + Math.max(60, thick * ranks.length);
    const every = Math.ceil(15 / thick);
    const named = ranks.map((rank, k) => [-k, String(rank)]).filter((_, k) => k % every === 0);
    const plot = axes(holder, width, height, { label: "seconds", range: [0, Math.max(...totals) * 1.01 || 1] },
      { label: "rank", range: [-ranks.length + 0.5, 0.5], names: named, plain: true });
    const step = (plot.frame.bottom - plot.frame.top) / ranks.length, bar = Math.min(step > 6 ? step * 0.78 : step, 34);
    seconds.forEach((each, k) => {
      let before = 0;
      each.forEach((value, phase) => {
        add(plot.inner, "rect", { x: plot.sx(before), width: Math.max(plot.sx(before + value) - plot.sx(before), 0), y: plot.sy(-k) - bar / 2, height: bar, fill: PHASE_COLOURS[names[phase]] });
        before += value;
      });
    });
    return (px, py) => {
      const k = Math.floor((py - plot.frame.top) / step);
      if (!(k in ranks) || px < plot.frame.left) return null;
      return [`rank ${ranks[k]}, ${rows[k].toLocaleString("en")} rows`, ...names.map((name, phase) => `${name} ${text(seconds[k][phase], 3)} s`)].join("\n");
    };
  });
  legend(document.getElementById("timing"), names.map((name) => [name, PHASE_COLOURS[name]]), "square");
}

function metrics() {
  const { iteration, shares, names } = report.metrics;
  curves("metrics", {
    series: names.map((name, k) => ({ name, colour: PHASE_COLOURS[name], xs: iteration, ys: shares[k] })),
    places: iteration,
    x: { label: "iteration", range: capped(iteration, 0.01) },
    y: { label: "share of the time", range: [0, 1], names: PERCENT },
    words: (k) => [`until iteration ${iteration[k].toLocaleString("en")}`, ...names.map((name, each) => `${name} ${text(100 * shares[each][k], 3)} %`)].join("\n"),
  });
}

if (report.latent) latent();
else weights(() => report.alpha.map((_, k) => k));
if (report.predictions) { predictions(); calibration(); }
learning();
if (report.timing) timing();
if (report.metrics) metrics();
