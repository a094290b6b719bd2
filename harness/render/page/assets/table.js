// The table of attempts: sorted within each key, filtered, walked with the arrow keys.

const COLUMNS = [
  { key: "n", title: "#", figure: true, first: "descending" },
  { key: "verdict", title: "verdict" },
  { key: "hypothesis", title: "hypothesis" },
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

// A longer table is shown from its newest end, and the rest when it is asked for: most of it is never looked at.
const MOST_ROWS = 200;
const isLong = overview.rows.length > MOST_ROWS;
const order = { key: "n", down: isLong };
let showsAll = !isLong;

function valueOf(row, key) {
  return key in row.values ? row.values[key] : row[key];
}

// What is not known goes last, whichever way the rest is sorted.
function compared(a, b) {
  const [left, right] = [valueOf(a, order.key), valueOf(b, order.key)];
  const [none, other] = [left === null || left === "", right === null || right === ""];
  if (none || other) return none - other || a.n - b.n;
  const sign = typeof left === "string" ? left.localeCompare(right, "en") : left - right;
  return (order.down ? -sign : sign) || a.n - b.n;
}

function cellOf(row, column, used) {
  const attributes = { role: "cell", class: `${column.key}${column.figure ? " figure" : ""}`, "data-title": column.title };
  if (column.key === "n") {
    return make("td", attributes, String(row.n), row.champion ? make("span", { class: "star", title: "the champion here" }, "★", make("span", { class: "hidden" }, " champion")) : "");
  }
  if (column.key === "verdict") return make("td", attributes, badge(row.outcome, row.verdict));
  if (column.key === "hypothesis") {
    const link = make("a", { href: `#attempt-${row.id}`, tabindex: used.first ? "0" : "-1" }, row.hypothesis || "no hypothesis");
    used.first = false;
    return make("td", attributes, row.failure ? make("span", { class: "kind" }, `${row.failure} `) : "", link);
  }
  const text = column.key in row.texts ? row.texts[column.key] : row[column.key];
  if (text === null || text === undefined || text === "") return make("td", { ...attributes, class: `${attributes.class} none` }, "-");
  return make("td", attributes, text);
}

function headOf(columns, redraw) {
  return make("tr", { role: "row" }, columns.map((column) => {
    const isSorted = order.key === column.key;
    const sort = make("button", { type: "button", on: { click: () => {
      order.down = order.key === column.key ? !order.down : column.first === "descending";
      order.key = column.key;
      redraw();
      byId("table").querySelector(`th[data-key="${column.key}"] button`).focus();
    } } }, column.title, make("span", { class: "arrow", "aria-hidden": "true" }, isSorted ? (order.down ? " ↓" : " ↑") : ""));
    return make("th", { role: "columnheader", scope: "col", "data-key": column.key, class: column.figure ? "figure" : "", "aria-sort": isSorted ? (order.down ? "descending" : "ascending") : "none" }, sort);
  }));
}

// The ids of the attempts that the filters leave, in the order of the table.
let shownIds = [];

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
  const used = { first: true };
  const newestFirst = order.key === "n" && order.down;
  const sorted = (newestFirst ? [...overview.groups].reverse() : overview.groups).map((group) => [group, found.filter((row) => row.group === group.id).sort(compared)]);
  shownIds = sorted.flatMap(([, rows]) => rows.map((row) => row.id));
  let room = showsAll ? Infinity : MOST_ROWS;
  const bodies = sorted.map(([group, rows]) => {
    const own = rows.slice(0, room);
    room -= own.length;
    if (!own.length) return [];
    const head = overview.groups.length > 1
      ? [make("tr", { role: "row", class: "group" }, make("th", { role: "rowheader", scope: "rowgroup", colspan: columns.length }, group.title,
        make("span", { class: "faint" }, ` · key ${group.id}${group.difference ? ` · not comparable with the key before: ${group.difference}` : ""}`)))]
      : [];
    return [make("tbody", { role: "rowgroup" }, ...head, ...own.map((row) => make("tr", { role: "row", id: `row-${row.id}`, "data-id": row.id, class: row.outcome }, columns.map((column) => cellOf(row, column, used)))))];
  }).flat();
  table.tHead.replaceChildren(headOf(columns, drawTable));
  for (const body of [...table.tBodies]) body.remove();
  table.append(...bodies);
  byId("more").hidden = room > 0 || shownIds.length <= MOST_ROWS;
  byId("shown").textContent = found.length === overview.rows.length ? `${found.length} attempts` : `${found.length} of ${overview.rows.length} attempts`;
}

// One row at a time is in the tab order; the arrow keys move it.
function focusRow(id) {
  const link = byId(`row-${id}`)?.querySelector("a");
  if (!link) return;
  byId("table").querySelectorAll('a[tabindex="0"]').forEach((other) => other.setAttribute("tabindex", "-1"));
  link.setAttribute("tabindex", "0");
  link.focus();
}

function startTable() {
  const hasUndone = overview.rows.some((row) => row.undone || row.revoked);
  for (const outcome of OUTCOMES) {
    const count = overview.rows.filter((row) => row.outcome === outcome).length;
    const box = make("input", { type: "checkbox", value: outcome, checked: true, on: { change: drawTable } });
    byId("outcomes").append(make("label", {}, box, badge(outcome, `${outcome === "accept" && hasUndone ? "accepted or taken back" : WORDS[outcome]} ${count}`)));
  }
  byId("keys").append(make("option", { value: "all" }, "all"), ...overview.groups.map((group) => make("option", { value: group.id }, `${group.label}, ${group.id}`)));
  byId("keys").closest("label").hidden = overview.groups.length < 2;
  byId("keys").addEventListener("change", drawTable);
  byId("find").addEventListener("input", drawTable);
  byId("more").textContent = `Show all ${overview.rows.length} attempts`;
  byId("more").addEventListener("click", () => {
    showsAll = true;
    drawTable();
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("table").addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-id]");
    if (row && !event.target.closest("a") && !String(window.getSelection())) location.hash = `#attempt-${row.dataset.id}`;
  });
  byId("table").addEventListener("keydown", (event) => {
    const row = event.target.closest("tr[data-id]");
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const place = shownIds.indexOf(row.dataset.id);
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: shownIds.length - 1 }[event.key];
    if (to === undefined || !(to in shownIds)) return;
    event.preventDefault();
    focusRow(shownIds[to]);
  });
  drawTable();
}
