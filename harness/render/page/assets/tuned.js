// The page of a table of tuned constants: cost of the fallback for each shape and chip, rows, searches.

const CHIP_SYMBOLS = ["circle", "diamond", "square", "triangle-up", "star-triangle-down", "pentagon"];
const CHIP_INKS = ["piece-work", "piece-stall", "piece-dma", "piece-edge", "failed", "piece-other"];
const COLUMNS = overview.columns.map((column) => (column.opens ? { ...column, opens: (row, link) => link(row.texts[column.key]) } : column));
const order = { key: "n", down: false };

function drawRatios() {
  const rows = overview.rows.filter((row) => row.ratio !== null);
  if (!rows.length) return Promise.resolve();
  const shapes = overview.shapes;
  const room = isNarrow() ? 18 : 44;
  // Names differ at their ends as often as at their beginnings.
  const names = shapes.map((name) => asChartText(name.length > room ? `${name.slice(0, room / 2 - 1)}…${name.slice(-room / 2)}` : name));
  const traces = overview.chips.map((chip, place) => {
    const own = rows.filter((row) => row.chip === chip);
    const ink = colour(CHIP_INKS[place % CHIP_INKS.length]), symbol = CHIP_SYMBOLS[place % CHIP_SYMBOLS.length];
    return {
      type: "scatter", mode: "markers", name: asChartText(chip), x: own.map((row) => row.ratio), y: own.map((row) => shapes.indexOf(row.shape)),
      marker: { symbol: own.map((row) => (row.certain ? symbol : `${symbol}-open`)), size: 11, color: ink, line: { width: 1.6, color: ink } },
      customdata: own.map((row) => row.id), text: own.map((row) => row.says.map(asChartText).join("<br>")), hovertemplate: "%{text}<extra></extra>",
    };
  }).filter((trace) => trace.x.length);
  const all = rows.map((row) => row.ratio);
  const [low, high] = [Math.min(1, ...all) / 1.1, Math.max(2, ...all) * 1.15];
  const { tickvals } = ticks(low, high, [[1, ""]]);
  return Plotly.react("ratios", traces, plain({
    height: 120 + 30 * shapes.length, margin: { l: 20, r: 16, t: 44, b: 48 }, dragmode: false,
    shapes: [{ type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { dash: "dot", width: 1.2, color: colour("faint") } }],
    xaxis: axis("fallback over best, simulated", { type: "log", range: [Math.log10(low), Math.log10(high)], tickvals, ticktext: tickvals.map((value) => `${Number(value.toPrecision(3))}x`), fixedrange: true }),
    yaxis: { range: [shapes.length - 0.4, -0.6], tickvals: names.map((_, place) => place), ticktext: names, automargin: true, fixedrange: true, gridcolor: colour("grid"), zeroline: false, tickfont: { color: colour("ink") } },
  }), PERFORMED);
}

function drawTable() {
  const table = byId("table");
  const rows = overview.rows.toSorted(comparedBy(order));
  shownIds = rows.map((row) => row.id);
  showRows(table, headOf(table, COLUMNS, order, drawTable), [make("tbody", { role: "rowgroup" }, rows.map((row) => rowOf(row, COLUMNS, row.id === shownIds[0])))]);
}

async function drawAll() {
  await charts();
  await drawRatios();
  const chart = byId("ratios");
  if (!chart.on) return;
  chart.removeAllListeners("plotly_click");
  chart.on("plotly_click", (event) => { location.hash = `#search-${event.points[0].customdata}`; });
}

byId("heading").textContent = overview.title;
byId("about").textContent = overview.about;
byId("tiles").append(...tilesOf(overview.tiles));
byId("ratios-words").textContent = overview.words;
byId("ratios").setAttribute("aria-label", `${overview.words} The table below has every figure.`);
byId("notes").append(...overview.notes.map((note) => make("li", {}, note)));
startTheme(() => {
  drawAll();
  drawOpen();
});
startDialog({
  name: "search",
  listed: "rows",
  otherwise: () => "rows.jsonl in the table's folder has the details.",
  eyebrow: (row) => row.checks,
  words: (row) => [make("span", { class: "number" }, row.chip), " ", row.shape],
  below: (row) => row.best,
  contents: (detail) => [
    section("Row", make("dl", { class: "facts" }, detail.facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]))),
    section("Search", detail.search ? searchParts(detail.search) : make("p", { class: "faint" }, "This row was made before trials were kept: remove its line from rows.jsonl, and the same command makes the row again.")),
  ],
  draw: (dialog, detail) => { if (detail.search) drawSearch(dialog, detail.search); },
});
startListing();
drawTable();
followHash();
performance.mark("table");
drawAll().then(() => {
  performance.mark("charts");
  document.documentElement.dataset.charts = "drawn";
}, (error) => {
  byId("ratios-words").textContent += ` The chart cannot be drawn here: ${error.message}.`;
  throw error;
});
