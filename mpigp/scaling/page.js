const { measured, forecast } = report;
const TERMS = Object.keys(forecast.terms);
const colour = (name) => PHASE_COLOURS[name];
const percent = (share) => `${text(100 * share, 3)} %`;

/** An axis of numbers of ranks, by their logarithms, with the names that have room. */
function ranksAxis(ranks) {
  const at = ranks.map(Math.log2), margin = 0.04 * (at.at(-1) - at[0]) || 0.5;
  const range = [at[0] - margin, at.at(-1) + margin];
  return (width) => {
    const names = [];
    let end = -Infinity;
    ranks.forEach((count, k) => {
      const place = ((at[k] - range[0]) / (range[1] - range[0])) * (width - 80), half = String(count).length * IN_A_ROW * 0.5 + 3;
      if (place - half < end) return;
      names.push([at[k], String(count)]);
      end = place + half;
    });
    return { label: "ranks", range, names };
  };
}

/** An axis of powers of two, by their logarithms. */
function doublings(label, values) {
  const low = Math.floor(Math.log2(Math.min(...values)) - 0.02), high = Math.ceil(Math.log2(Math.max(...values)) + 0.02);
  const step = Math.ceil((high - low) / 7), names = [];
  for (let power = low; power <= high; power += step) names.push([power, text(2 ** power, 4)]);
  return { label, range: [low, high], names };
}

const efficiencies = (values) => {
  const high = Math.max(1.05, ...values) * 1.02;
  return { label: "efficiency", range: [0, high], names: [0, 0.25, 0.5, 0.75, 1].map((value) => [value, String(value)]) };
};

/** Bars of shares, one for each number of ranks. */
function bars(id, ranks, parts, words) {
  const names = Object.keys(parts);
  live(id, (holder, width) => {
    const every = Math.ceil((ranks.length * 40) / (width - 60));
    const plot = axes(holder, width, low(width),
      { label: "ranks", range: [-0.6, ranks.length - 0.4], names: ranks.map((count, k) => [k, String(count)]).filter((_, k) => k % every === 0), plain: true },
      { label: "share of the time", range: [0, 1], names: PERCENT });
    const thick = Math.min(46, (plot.sx(1) - plot.sx(0)) * 0.72);
    ranks.forEach((_, k) => {
      let before = 0;
      const total = names.reduce((sum, name) => sum + parts[name][k], 0) || 1;
      for (const name of names) {
        const share = parts[name][k] / total, top = plot.sy(before + share);
        add(plot.inner, "rect", { x: plot.sx(k) - thick / 2, width: thick, y: top, height: Math.max(plot.sy(before) - top, 0), fill: colour(name), "data-share": share, "data-name": name });
        before += share;
      }
    });
    return (px) => {
      const k = Math.round((px - plot.sx(0)) / (plot.sx(1) - plot.sx(0)));
      return k in ranks && px >= plot.frame.left ? words(k) : null;
    };
  });
  legend(document.getElementById(id), names.map((name) => [name, colour(name)]), "square");
}

function study() {
  const { ranks, speedup, efficiency, seconds, fitted, balance, balance_of_rows } = measured;
  const at = ranks.map(Math.log2), first = ranks[0];
  const words = (k) => `${ranks[k]} ranks\n${text(seconds[k], 4)} s per evaluation\nspeed-up ${text(speedup[k], 4)}\nefficiency ${text(efficiency[k], 4)}\nthe model says ${text(fitted[k], 4)} s`;
  const over = fitted.map((value, k) => (speedup[k] * seconds[k]) / value);
  const both = (name, here, there, ideal) => [
    { name, colour: COLOURS[0], xs: at, ys: here, dots: true },
    { name: "model", colour: COLOURS[1], xs: at, ys: there },
    { name: "ideal", colour: COLOURS[8], xs: at, ys: ideal, dashed: true },
  ];
  curves("speedup", { series: both("measured", speedup.map(Math.log2), over.map(Math.log2), at), places: at,
    x: ranksAxis(ranks), y: doublings("speed-up", [...speedup, ...ranks]), words });
  curves("efficiency", { series: both("measured", efficiency, over.map((value, k) => value / ranks[k]), at.map(() => 1)), places: at,
    x: ranksAxis(ranks), y: efficiencies(efficiency), words });
  bars("shares", ranks, measured.shares, (k) => [`${ranks[k]} ranks`, ...Object.keys(measured.shares).map((name) => `${name} ${percent(measured.shares[name][k])}`)].join("\n"));
  curves("balance", { series: [
    { name: "seconds on rows", colour: COLOURS[0], xs: at, ys: balance, dots: true },
    { name: "rows", colour: COLOURS[1], xs: at, ys: balance_of_rows, dots: true }],
    places: at, x: ranksAxis(ranks), y: { label: "mean over most", range: [0, 1.05], names: [0, 0.25, 0.5, 0.75, 1].map((value) => [value, String(value)]) },
    words: (k) => `${ranks[k]} ranks\nseconds on rows ${text(balance[k], 3)}\nrows ${text(balance_of_rows[k], 3)}` });
}

function predicted() {
  const { ranks, speedup, efficiency, terms } = forecast, at = ranks.map(Math.log2);
  const words = (k) => `${ranks[k]} ranks\nspeed-up ${text(speedup[k], 4)}\nefficiency ${text(efficiency[k], 4)}`;
  const ideal = { name: "ideal", colour: COLOURS[8], dashed: true, xs: at };
  curves("forecast-speedup", { series: [{ name: "model", colour: COLOURS[1], xs: at, ys: speedup.map(Math.log2) }, { ...ideal, ys: at }], places: at,
    x: ranksAxis(ranks), y: doublings("speed-up", [...speedup, ...ranks]), words, within: 30 });
  curves("forecast-efficiency", { series: [{ name: "model", colour: COLOURS[1], xs: at, ys: efficiency }, { ...ideal, ys: at.map(() => 1) }], places: at,
    x: ranksAxis(ranks), y: efficiencies(efficiency), words, within: 30 });
  bars("terms", ranks, terms, (k) => [`${ranks[k]} ranks`, ...TERMS.map((name) => `${name} ${text(1e3 * terms[name][k], 3)} ms`)].join("\n"));
}

study();
predicted();
