// The dialog over the page when a row is chosen by its link or by an address; the arrow keys go to its neighbours.

// Each page sets the following fields: `name` is the dialog's id and the beginning of its addresses; `eyebrow`, `words`
// and `below` make its head from a row; `contents` makes the rest from the row's details; `draw` draws its charts, again
// when the theme changes; `otherwise` says where else the details are. `beside` is the id of another row to compare
// with, which follows a ~ in the address.
const opened = { name: "", id: null, detail: null, beside: null };

async function openRow(id) {
  const dialog = byId(opened.name);
  const row = rowsById.get(id);
  opened.id = id;
  let inside;
  let detail = null;
  try {
    detail = await detailOf(id);
    inside = opened.contents(detail);
  } catch (error) {
    inside = [make("p", { class: "note" }, `The details cannot be unpacked here (${error.message}); ${opened.otherwise(row)}`)];
  }
  if (opened.id !== id) return;
  const place = shownIds.indexOf(id);
  const step = (to, words, sign) => make("a", { class: "button", href: to ? `#${opened.name}-${to}` : null, "aria-label": words, "aria-disabled": to ? null : "true", title: words }, sign);
  dialog.replaceChildren(
    make("div", { class: "bar head" },
      make("p", {}, opened.eyebrow(row)),
      make("nav", { "aria-label": opened.listed }, step(shownIds[place - 1], "the one before in the table", "←"), step(place < 0 ? null : shownIds[place + 1], "the next in the table", "→"),
        make("button", { type: "button", on: { click: () => dialog.close() } }, "Close"))),
    make("h2", { id: `${opened.name}-title`, tabindex: "-1" }, opened.words(row)),
    make("p", { class: "faint" }, opened.below(row)),
    ...inside);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  dialog.dataset.id = id;
  const hottest = dialog.querySelector(".hottest");
  // The line with most cycles is shown first: readers look for it, and the head of the file is a scroll away.
  if (hottest) hottest.closest(".scroll").scrollTop = hottest.offsetTop - 160;
  byId(`${opened.name}-title`).focus();
  opened.detail = detail;
  drawOpen();
}

function drawOpen() {
  const { detail } = opened;
  if (detail) charts().then(() => { if (opened.detail === detail) opened.draw(byId(opened.name), detail); });
}

function followHash() {
  const dialog = byId(opened.name);
  const [id, beside] = location.hash.startsWith(`#${opened.name}-`) ? location.hash.slice(opened.name.length + 2).split("~") : [null];
  opened.beside = rowsById.has(beside) && beside !== id ? beside : null;
  if (rowsById.has(id)) openRow(id);
  else if (dialog.open) dialog.close();
}

function startDialog(how) {
  Object.assign(opened, how);
  const dialog = byId(opened.name);
  dialog.addEventListener("close", () => {
    const left = opened.id;
    opened.id = null;
    opened.detail = null;
    if (location.hash.startsWith(`#${opened.name}-`)) history.pushState(null, "", location.pathname + location.search);
    focusRow(left);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!to || event.ctrlKey || event.metaKey || event.altKey || event.target.closest(".scroll")) return;
    const next = shownIds[shownIds.indexOf(opened.id) + to];
    if (next) location.hash = `#${opened.name}-${next}`;
  });
  window.addEventListener("hashchange", followHash);
}
