// A list of rows: sorted by its heads, walked with the arrow keys, each row opened by its link.

// The ids of the rows that are shown, in their order.
let shownIds = [];

function valueOf(row, key) {
  return key in row.values ? row.values[key] : row[key];
}

// Unknown values go last, in whichever direction the rest is sorted.
function comparedBy(order) {
  return (a, b) => {
    const [left, right] = [valueOf(a, order.key), valueOf(b, order.key)];
    const [none, other] = [left === null || left === "", right === null || right === ""];
    if (none || other) return none - other || a.n - b.n;
    const sign = typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) : left - right;
    return (order.down ? -sign : sign) || a.n - b.n;
  };
}

// `column.show` makes the contents of a cell, `column.opens` contents with a link that opens the row.
function cellOf(row, column, isFirst) {
  const attributes = { role: "cell", class: [column.key, column.figure ? "figure" : "", column.look || ""].filter(Boolean).join(" "), "data-title": column.title };
  if (column.show) return make("td", attributes, column.show(row));
  if (column.opens) return make("td", attributes, column.opens(row, (words) => make("a", { href: `#${opened.name}-${row.id}`, tabindex: isFirst ? "0" : "-1" }, words)));
  const text = column.key in row.texts ? row.texts[column.key] : row[column.key];
  if (text === null || text === undefined || text === "") return make("td", { ...attributes, class: `${attributes.class} none` }, "-");
  return make("td", attributes, text);
}

function rowOf(row, columns, isFirst) {
  return make("tr", { role: "row", id: `row-${row.id}`, "data-id": row.id, class: row.outcome }, columns.map((column) => cellOf(row, column, isFirst)));
}

// The heads of `table`, which sort it: a click changes `order` and calls `redraw`.
function headOf(table, columns, order, redraw) {
  return make("tr", { role: "row" }, columns.map((column) => {
    const isSorted = order.key === column.key;
    const sort = make("button", { type: "button", on: { click: () => {
      order.down = order.key === column.key ? !order.down : column.first === "descending";
      order.key = column.key;
      redraw();
      table.querySelector(`th[data-key="${column.key}"] button`).focus();
    } } }, column.title, make("span", { class: "arrow", "aria-hidden": "true" }, isSorted ? (order.down ? " ↓" : " ↑") : ""));
    return make("th", { role: "columnheader", scope: "col", "data-key": column.key, class: column.figure ? "figure" : "", "aria-sort": isSorted ? (order.down ? "descending" : "ascending") : "none" }, sort);
  }));
}

function showRows(table, head, bodies) {
  table.tHead.replaceChildren(head);
  for (const body of [...table.tBodies]) body.remove();
  table.append(...bodies);
}

// Only one row is in the tab order; the arrow keys choose another row.
function focusRow(id) {
  const link = byId(`row-${id}`)?.querySelector("a");
  if (!link) return;
  byId("table").querySelectorAll('a[tabindex="0"]').forEach((other) => other.setAttribute("tabindex", "-1"));
  link.setAttribute("tabindex", "0");
  link.focus();
}

function startListing() {
  startRows((id) => { location.hash = `#${opened.name}-${id}`; });
}

// A click anywhere in a row opens it.
function startRows(open) {
  byId("table").addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-id]");
    if (row && !event.target.closest("a") && !String(window.getSelection())) open(row.dataset.id);
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
}
