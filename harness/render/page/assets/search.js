// A search: its trials in their order with the best so far, times against each constant, every trial in a table.

const STATES = {
  timed: { words: "timed", sign: "●", symbol: "circle", size: 8, ink: "piece-work" },
  refused: { words: "judged, fails", sign: "✕", symbol: "x-open", size: 10, ink: "failed" },
  best: { words: "judged", sign: "★", symbol: "star", size: 14, ink: "accept" },
  failed: { words: "no latency", sign: "✕", symbol: "x-thin-open", size: 8, ink: "failed" },
};

function settingsOf(search, trial) {
  return search.names.map((name, place) => `${name}=${trial.at[place]}`).join(" ");
}

// Constants with one value have no chart.
function charted(search) {
  return search.names.map((_, place) => place).filter((place) => search.values[place].length > 1);
}

function searchParts(search) {
  const timed = search.trials.filter((trial) => trial.s !== null);
  const least = timed.length ? timed.reduce((a, b) => (b.s < a.s ? b : a)) : null;
  const parts = [make("dl", { class: "tiles" }, tilesOf(search.tiles)), ...search.notes.map((note) => make("p", { class: "faint" }, note))];
  if (least) {
    const chart = (attributes, label) => make("div", { class: "chart", role: "img", "aria-label": label, ...attributes });
    parts.push(make("figure", {}, make("h4", {}, `Best so far, ${search.label}`),
      chart({ "data-trials": "yes" }, `Times of ${search.trials.length} trials in the order of the search, ${search.label}; the least, ${least.time}, is trial ${least.n}: ${settingsOf(search, least)}. The table below has every figure.`)));
    const places = charted(search);
    if (places.length) {
      parts.push(make("div", { class: "constants" }, places.map((place) => make("figure", {}, make("h4", {}, `Time against ${search.names[place]}`),
        chart({ "data-constant": place }, `Times against ${search.values[place].length} values of ${search.names[place]}, ${search.label}; the least is at ${least.at[place]}.`)))));
    }
  }
  const table = make("table", { class: "listing trials", role: "table" }, make("thead", { role: "rowgroup" }));
  showTrials(table, search, { key: "s", down: false });
  parts.push(make("h4", {}, `Every trial, ${search.label}`), make("div", { class: "scroll tallest", tabindex: "0", role: "region", "aria-label": "every trial" }, table));
  return parts;
}

function showTrials(table, search, order) {
  const columns = [
    { key: "n", title: "#", figure: true },
    ...search.names.map((name, place) => ({ key: `c${place}`, title: name, figure: true, look: "value" })),
    { key: "s", title: "time", figure: true },
    { key: "above", title: "over the fastest", figure: true },
    { key: "remark", title: "remark", look: "bare wide", show: (row) => (row.remark ? [make("span", { class: `mark ${row.state}`, "aria-hidden": "true" }, `${STATES[row.state].sign} `), row.remark] : "") },
  ];
  const number = (text) => (text !== "" && Number.isFinite(Number(text)) ? Number(text) : text);
  const rows = search.trials.map((trial) => ({
    n: trial.n, remark: trial.remark, state: trial.state,
    values: { s: trial.s, above: trial.s, ...Object.fromEntries(trial.at.map((text, place) => [`c${place}`, number(text)])) },
    texts: { s: trial.time, above: trial.above, ...Object.fromEntries(trial.at.map((text, place) => [`c${place}`, text])) },
  }));
  const redraw = () => showRows(table, headOf(table, columns, order, redraw), [make("tbody", { role: "rowgroup" },
    rows.toSorted(comparedBy(order)).map((row) => make("tr", { role: "row" }, columns.map((column) => cellOf(row, column)))))]);
  redraw();
}

function drawSearch(dialog, search) {
  const timed = search.trials.filter((trial) => trial.s !== null);
  if (!timed.length) return;
  const all = timed.map((trial) => trial.s).concat(search.level ? [search.level[1]] : []);
  const [low, high] = [Math.min(...all) / 1.12, Math.max(...all) * 1.12];
  const times = { type: "log", range: [Math.log10(low), Math.log10(high)], ...ticks(low, high, SECONDS), fixedrange: true };
  const isCrowded = search.trials.length > 150;
  const hasFailed = timed.length < search.trials.length;
  // Trials without a latency stand above the axis of times.
  const strip = { domain: [0.93, 1], range: [0, 1], visible: false, fixedrange: true };
  const points = (x, showlegend) => Object.entries(STATES).map(([state, { words, symbol, size, ink }]) => {
    const own = search.trials.filter((trial) => trial.state === state);
    return {
      type: "scatter", mode: "markers", name: words, showlegend, yaxis: state === "failed" ? "y2" : "y", cliponaxis: false,
      marker: { symbol, size: state === "timed" && isCrowded ? size - 3 : size, color: colour(ink), opacity: state === "timed" ? (isCrowded ? 0.6 : 0.8) : 1, line: { width: state === "timed" ? 0 : 1.8, color: colour(ink) } },
      x: own.map(x), y: own.map((trial) => trial.s ?? 0.5),
      text: own.map((trial) => asChartText(`trial ${trial.n}: ${settingsOf(search, trial)}`).concat(trial.time ? `<br>${trial.time}` : "", trial.remark ? `<br>${asChartText(folded90(trial.remark))}` : "")),
      hovertemplate: "%{text}<extra></extra>",
    };
  }).filter((trace) => trace.x.length);
  const domain = [0, hasFailed ? 0.9 : 1];
  const last = search.trials.at(-1).n;
  let best = Infinity;
  const steps = timed.map((trial) => { best = Math.min(best, trial.s); return [trial.n, best]; });
  const traces = [{
    type: "scatter", mode: "lines", name: "best so far", hoverinfo: "skip", line: { shape: "hv", color: colour("accept"), width: 1.6 }, opacity: 0.7,
    x: [...steps.map((step) => step[0]), last], y: [...steps.map((step) => step[1]), best],
  }];
  if (search.level) {
    traces.push({
      type: "scatter", mode: "lines", name: asChartText(`${search.level[0]}: ${search.level[2]}`), hoverinfo: "skip", line: { dash: "dot", color: colour("floor"), width: 1.4 },
      x: [0.5, last + 0.5], y: [search.level[1], search.level[1]],
    });
  }
  const drawn = [Plotly.newPlot(dialog.querySelector("[data-trials]"), [...traces, ...points((trial) => trial.n, true)], plain({
    height: 340, margin: { l: 74, r: 14, t: 40, b: 44 },
    xaxis: axis("trial, in the order of the search", { tickformat: "d", dtick: wholeStep(last), range: [0.5, last + 0.5], showgrid: false }),
    yaxis: axis("time", { domain, ...times }), yaxis2: strip,
  }), PERFORMED)];
  for (const element of dialog.querySelectorAll("[data-constant]")) {
    const place = Number(element.dataset.constant);
    // Places, not the values themselves: words and numbers stand evenly, in rising order.
    const at = new Map(search.values[place].map((value, index) => [value, index]));
    const names = search.values[place].map((value) => asChartText(value.length > 14 ? `${value.slice(0, 13)}…` : value));
    const every = Math.ceil(names.length / 8);
    const reached = search.values[place].map((value, index) => [index, Math.min(...timed.filter((trial) => trial.at[place] === value).map((trial) => trial.s))]).filter(([, least]) => Number.isFinite(least));
    const line = { type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false, line: { color: colour("accept"), width: 1.4 }, opacity: 0.7, x: reached.map((one) => one[0]), y: reached.map((one) => one[1]) };
    drawn.push(Plotly.newPlot(element, [line, ...points((trial) => at.get(trial.at[place]), false)], plain({
      height: 230, margin: { l: 74, r: 10, t: 8, b: 44 }, showlegend: false, dragmode: false,
      xaxis: axis(asChartText(search.names[place]), { range: [-0.5, names.length - 0.5], tickvals: names.map((_, index) => index).filter((index) => index % every === 0), ticktext: names.filter((_, index) => index % every === 0), tickangle: 0, showgrid: false, fixedrange: true }),
      yaxis: axis("time", { domain, ...times }), yaxis2: strip,
    }), PERFORMED));
  }
  return Promise.all(drawn);
}

function folded90(text) {
  return text.length > 90 ? `${text.slice(0, 89)}…` : text;
}
