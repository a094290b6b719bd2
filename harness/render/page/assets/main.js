// Puts the page together: title, the group that the charts show, the table, the attempt in the address.

const groupsById = new Map(overview.groups.map((group) => [group.id, group]));

function opensClicked(id) {
  byId(id).removeAllListeners("plotly_click");
  byId(id).on("plotly_click", (event) => {
    const clicked = event.points[0].customdata;
    if (clicked) location.hash = `#attempt-${clicked}`;
  });
}

async function drawGroup() {
  const group = groupsById.get(byId("group").value);
  const all = overview.rows.filter((row) => row.group === group.id);
  // Checks of an unchanged champion would hide the other attempts; they are shown only if there are no others.
  const told = all.filter((row) => !row.recheck);
  const rows = told.length ? told : all;
  byId("group-note").textContent = `${group.title}, key ${group.id}. ${group.difference ? `Changed since the previous key: ${group.difference}.` : ""}`;
  byId("tiles").replaceChildren(...tilesOf(group.tiles));
  const timed = rows.filter((row) => row.values.seconds !== null).length;
  const placed = rows.filter((row) => row.intensity !== null && row.flops !== null).length;
  byId("progress-words").textContent = `${group.label}: ${timed} of ${attempts(rows.length)} with a latency. Bars are uncertainties${timed > MOST_BARS ? " (drawn for accepted attempts only)" : ""}; the line is the champion.${rows.some((row) => row.undone) ? " Open squares are undos, the attempts that they took back, and revokes." : ""}${rows.some((row) => row.revoked) ? " Open crosses are accepted attempts that fail under a later judge and lost their title." : ""}`;
  byId("roofline-words").textContent = `${group.label}: ${placed} of ${attempts(rows.length)} in the chart: those with a latency and known traffic.`;
  byId("progress").setAttribute("aria-label", `Latency and score of ${attempts(timed)}, ${group.label}; the table below has every figure.`);
  byId("roofline").setAttribute("aria-label", `Roofline of ${attempts(placed)}, ${group.label}: compute roof ${group.roof.flops_text}, memory roof ${group.roof.bytes_text}, ridge ${group.roof.ridge_text}.`);
  await charts();
  await Promise.all([drawProgress(group, rows), drawRoofline(group, rows)]);
  ["progress", "roofline"].forEach(opensClicked);
}

function redrawAll() {
  drawGroup();
  drawOpen();
}

byId("heading").textContent = overview.problem || overview.contest;
byId("about").textContent = `Contest ${overview.contest}${overview.branch ? ` on ${overview.branch}` : ""}, ${attempts(overview.rows.length)}, written ${overview.made}`;
byId("group").append(...overview.groups.map((group) => make("option", { value: group.id, selected: group.id === overview.group }, `${group.label} · ${group.id} · ${attempts(overview.rows.filter((row) => row.group === group.id).length)}`)));
byId("group-choice").hidden = overview.groups.length < 2;
byId("group").addEventListener("change", drawGroup);
byId("notes").append(...overview.notes.map((note) => make("li", {}, note)));
byId("gain").textContent = overview.gain;
byId("gain").hidden = !overview.gain;
startTheme(redrawAll);
startAttempts();
startTable();
followHash();
performance.mark("table");
drawGroup().then(() => {
  performance.mark("charts");
  document.documentElement.dataset.charts = "drawn";
}, (error) => {
  byId("group-note").textContent += ` The charts cannot be drawn here: ${error.message}.`;
  throw error;
});
