// The page over several contests: a row for each, with its best time so far as a small chart.

const SPARK = { wide: 190, high: 40, edge: 5, left: 38 };
const LEAST = Math.min(0.5, overview.least);

// One scale for all rows: the first champion's time at the top, the least share of any contest at the bottom.
function spark(row) {
  const { wide, high, edge, left } = SPARK;
  const x = (number) => left + ((wide - left - edge) * (number - 1)) / Math.max(1, row.last - 1);
  const y = (share) => edge + ((high - 2 * edge) * Math.log(Math.min(1, Math.max(share, LEAST)))) / Math.log(LEAST);
  const path = row.spark.map(([number, share], place) => (place ? `H${x(number)}V${y(share)}` : `M${x(number)} ${y(share)}`)).join("");
  const words = `best time so far, ${row.label}: ${row.texts.gain || "no champion"} in ${row.texts.attempts_words}`;
  return drawn("svg", { class: "spark", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": words },
    ...[1, LEAST].flatMap((share) => [drawn("line", { class: "axis", x1: left, x2: wide, y1: y(share), y2: y(share) }), drawn("text", { x: left - 4, y: y(share) + 3 }, `${Math.round(100 * share)}%`)]), drawn("path", { d: path ? `${path}H${x(row.last)}` : "" }));
}

// How much of the chip's limit the champion reaches, with a mark where the first champion was.
function limit(row) {
  if (row.texts.limit === null) return "-";
  const at = (share) => Math.min(100, 100 * share);
  const mark = row.baseline_limit === null ? [] : [drawn("line", { class: "mark", x1: at(row.baseline_limit), x2: at(row.baseline_limit), y1: 0, y2: 8 })];
  return [make("span", { title: row.limit_words }, row.texts.limit), drawn("svg", { class: "share", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    drawn("rect", { class: "all", width: 100, height: 8 }), drawn("rect", { class: "own", width: at(row.values.limit), height: 8 }), ...mark)];
}

function peer(row) {
  if (!row.peer) return "-";
  const { name, time, ratio, note } = row.peer;
  return [`${name}, ${time}`, make("span", { class: "faint block" }, [ratio, note].filter(Boolean).join("; "))];
}

const COLUMNS = [
  { key: "problem", title: "what is computed", look: "bare wide", show: (row) => [make("a", { href: row.page, tabindex: row.id === shownIds[0] ? "0" : "-1" }, row.problem), make("span", { class: "faint block" }, row.contest)] },
  { key: "label", title: "source, chip" },
  { key: "attempts", title: "attempts", figure: true, first: "descending" },
  { key: "baseline", title: "first champion", figure: true },
  { key: "champion", title: "champion", figure: true },
  { key: "gain", title: "gain", figure: true, first: "descending" },
  { key: "limit", title: "of the chip's limit", figure: true, first: "descending", show: limit },
  { key: "peer", title: "best peer", look: "peer", show: peer },
  { key: "last", title: "best so far, of the first champion's time, by attempt", look: "bare", show: spark },
];
// The column of peers is left out if no contest has a peer.
const SHOWN = COLUMNS.filter((column) => column.key !== "peer" || overview.has_peers);
const order = { key: "n", down: false };

function drawTable() {
  const rows = overview.rows.toSorted(comparedBy(order));
  shownIds = rows.map((row) => row.id);
  showRows(byId("table"), headOf(byId("table"), SHOWN, order, drawTable), [make("tbody", { role: "rowgroup" }, rows.map((row) => rowOf(row, SHOWN, row.id === shownIds[0])))]);
}

byId("heading").textContent = overview.title;
byId("about").textContent = overview.about;
byId("tiles").append(...tilesOf(overview.tiles));
byId("table-words").textContent = `Arrow keys move between contests, Enter opens the page of a contest. The times of a contest are under one key: the champion's, or, if at most one attempt has a time under that key, the key with the most times. The chip's limit is the least time that its units, memory or links need for the useful work; the mark in the bar is the first champion's share. The small charts run from the first champion's time at the top to ${(100 * LEAST).toFixed(1)}% of it at the bottom, logarithmically, over the attempts. A dash means not known.`;
byId("notes").append(...overview.notes.map((note) => make("li", {}, note)));
startTheme(() => {});
startRows((id) => { location.href = rowsById.get(id).page; });
drawTable();
document.documentElement.dataset.charts = "drawn";
