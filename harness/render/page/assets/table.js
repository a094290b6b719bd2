// The table of attempts: sorted within each key, filtered.

const SYMBOLS = { accept: "●", reject: "◇", inconclusive: "○", failed: "✕" };

function badge(outcome, words) {
  return make("span", { class: `badge ${outcome}` }, make("span", { "aria-hidden": "true" }, SYMBOLS[outcome]), ` ${words}`);
}

const COLUMNS = [
  { key: "n", title: "#", figure: true, first: "descending", look: "bare", show: (row) => [String(row.n), row.champion ? make("span", { class: "star", title: "the champion here" }, "★", make("span", { class: "hidden" }, " champion")) : ""] },
  { key: "verdict", title: "verdict", look: "bare", show: (row) => badge(row.outcome, row.verdict) },
  { key: "hypothesis", title: "hypothesis", look: "bare wide", opens: (row, link) => [row.failure ? make("span", { class: "kind" }, `${row.failure} `) : "", link(row.hypothesis || "no hypothesis")] },
  { key: "score", title: "score", figure: true, first: "descending" },
  { key: "seconds", title: "time, ms", figure: true },
  { key: "change", title: "change of time", figure: true },
  { key: "expected", title: "expected", figure: true },
  { key: "util", title: "util", figure: true, first: "descending" },
  { key: "bound", title: "bound by" },
  { key: "gap", title: "gap", figure: true },
  { key: "copies", title: "copies", figure: true },
  { key: "spills", title: "spills", figure: true },
  { key: "date", title: "begun, UTC" },
];

// A table with more rows than this shows the newest, and the rest on demand: most rows are never looked at.
const MOST_ROWS = 200;
const isLong = overview.rows.length > MOST_ROWS;
const order = { key: "n", down: isLong };
let showsAll = !isLong;
// The runs of checks of an unchanged champion whose attempts are listed one by one.
const unfolded = new Set();

// Rows in the order of their numbers, each run of checks as one row until it is opened.
function foldedRows(rows, columns, isWhole) {
  if (!isWhole) return rows.map((row) => rowOf(row, columns, row.id === shownIds[0]));
  const made = [];
  let before = "";
  for (const row of rows) {
    if (!row.recheck || unfolded.has(row.recheck)) made.push(rowOf(row, columns, row.id === shownIds[0]));
    else if (row.recheck !== before) {
      const open = make("button", { type: "button", on: { click: () => {
        unfolded.add(row.recheck);
        drawTable();
        focusRow(row.id);
      } } }, row.recheck);
      made.push(make("tr", { role: "row", class: "fold" }, make("td", { role: "cell", class: "bare wide", colspan: columns.length }, open)));
    }
    before = row.recheck;
  }
  return made;
}

function drawTable() {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const outcomes = new Set([...byId("outcomes").querySelectorAll("input:checked")].map((box) => box.value));
  const key = byId("keys").value;
  const matches = (row) => {
    const text = `${row.n} ${row.verdict} ${row.kind} ${row.failure} ${row.hypothesis} ${row.commit}`.toLowerCase();
    return outcomes.has(row.outcome) && (key === "all" || row.group === key) && words.every((word) => text.includes(word));
  };
  const found = overview.rows.filter(matches);
  const columns = COLUMNS.filter((column) => !(column.key in overview.rows[0].values) || overview.rows.some((row) => row.values[column.key] !== null));
  const table = byId("table");
  const newestFirst = order.key === "n" && order.down;
  const sorted = (newestFirst ? [...overview.groups].reverse() : overview.groups).map((group) => [group, found.filter((row) => row.group === group.id).sort(comparedBy(order))]);
  const isWhole = order.key === "n" && !words.length;
  shownIds = sorted.flatMap(([, rows]) => rows.filter((row) => !isWhole || !row.recheck || unfolded.has(row.recheck)).map((row) => row.id));
  let room = showsAll ? Infinity : MOST_ROWS;
  const bodies = sorted.map(([group, rows]) => {
    const own = rows.slice(0, room);
    room -= own.length;
    if (!own.length) return [];
    const head = overview.groups.length > 1
      ? [make("tr", { role: "row", class: "group" }, make("th", { role: "rowheader", scope: "rowgroup", colspan: columns.length }, group.title,
        make("span", { class: "faint" }, ` · key ${group.id}${group.difference ? ` · not comparable with the previous key: ${group.difference}` : ""}`)))]
      : [];
    return [make("tbody", { role: "rowgroup" }, ...head, ...foldedRows(own, columns, isWhole))];
  }).flat();
  showRows(table, headOf(table, columns, order, drawTable), bodies);
  byId("more").hidden = room > 0 || shownIds.length <= MOST_ROWS;
  byId("shown").textContent = found.length === overview.rows.length ? attempts(found.length) : `${found.length} of ${attempts(overview.rows.length)}`;
}

function startTable() {
  const hasUndone = overview.rows.some((row) => row.undone || row.revoked);
  for (const outcome of OUTCOMES) {
    // Checks of an unchanged champion are no attempts at a faster kernel: the charts leave them out too.
    const count = overview.rows.filter((row) => row.outcome === outcome && !row.recheck).length;
    const box = make("input", { type: "checkbox", value: outcome, checked: true, on: { change: drawTable } });
    byId("outcomes").append(make("label", {}, box, badge(outcome, `${outcome === "accept" && hasUndone ? "accepted or taken back" : WORDS[outcome]} ${count}`)));
  }
  byId("keys").append(make("option", { value: "all" }, "all"), ...overview.groups.map((group) => make("option", { value: group.id }, `${group.label}, ${group.id}`)));
  byId("keys").closest("label").hidden = overview.groups.length < 2;
  byId("keys").addEventListener("change", drawTable);
  byId("find").addEventListener("input", drawTable);
  byId("more").textContent = `Show all ${attempts(overview.rows.length)}`;
  byId("more").addEventListener("click", () => {
    showsAll = true;
    drawTable();
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  startListing();
  drawTable();
}
