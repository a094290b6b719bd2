// One attempt, opened over the page: verdict, parts of its time, lines, diff.

function code(runs) {
  return runs.map(([kind, text]) => (kind ? make("span", { class: `code-${kind}` }, text) : text));
}

function expectation(detail) {
  const { stated, got, interval, met } = detail.expected;
  if (!stated && !got) return [];
  return [grid(["", "change of time"], [
    ["expected", stated || "nothing was stated"],
    ["actual", got ? `${got}${interval ? `, interval ${interval}` : ""}` : "unknown"],
    ...(met ? [["comparison", met]] : []),
  ], [], "narrow")];
}

function timeParts(bars, note) {
  if (!bars.length) return [];
  const [own, champion] = bars;
  const chart = make("div", { class: "chart", role: "img", "data-bars": "yes", "aria-label": `Where the simulated time goes: ${own.pieces.map((piece) => `${piece[1]} ${piece[4]}`).join(", ")}` });
  chart.bars = bars;
  const theirs = new Map((champion ? champion.pieces : []).map((piece) => [piece[1], piece]));
  const names = [...new Set([...own.pieces, ...(champion ? champion.pieces : [])].map((piece) => piece[1]))];
  const mine = new Map(own.pieces.map((piece) => [piece[1], piece]));
  const rows = names.map((name) => {
    const [here, there] = [mine.get(name), theirs.get(name)];
    const kind = (here || there)[0];
    return [make("span", {}, make("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), name), here ? here[3] : "none", here ? here[4] : "", champion ? (there ? there[3] : "none") : "", champion && there ? there[4] : ""];
  });
  rows.push(["total", own.total, "", champion ? champion.total : "", ""]);
  return [
    make("p", { class: "faint" }, `${note}${champion ? ` Second bar: ${champion.name}.` : ""}`),
    chart, trimmed(["part", "time", "share", champion ? champion.name : "", "share"], rows, [1, 2, 3, 4], "parts"),
  ];
}

function dearest(detail) {
  const lines = Object.entries(detail.heat).sort((a, b) => b[1][0] - a[1][0]).slice(0, 3);
  return lines.map(([line, cells]) => `line ${line}, ${cells[2]}`).join("; ");
}

function kernelLines(detail) {
  if (!detail.kernel.length) return [];
  const hot = Math.max(0, ...Object.values(detail.heat).map((cells) => cells[0]));
  const withHeat = hot > 0;
  const heads = ["line", ...(withHeat ? ["cycles", "share"] : []), "kernel.py", ...(withHeat ? ["spent on", "spilled per step", "units"] : [])];
  const rows = detail.kernel.map((place, index) => {
    const heat = detail.heat[index + 1];
    const cells = [make("th", { scope: "row", class: "figure" }, String(index + 1))];
    if (withHeat) {
      cells.push(make("td", { class: "figure" }, heat ? heat[1] : ""));
      const share = make("td", { class: "figure heat" }, heat ? heat[2] : "");
      if (heat) share.style.setProperty("--heat", `${((100 * heat[0]) / hot).toFixed(1)}%`);
      cells.push(share);
    }
    cells.push(make("td", { class: "code" }, code(detail.lines[place])));
    if (withHeat) cells.push(...[3, 4, 5].map((at) => make("td", { class: "small" }, heat ? heat[at] : "")));
    return make("tr", { class: heat && heat[0] === hot ? "hottest" : null }, cells);
  });
  const table = make("div", { class: "scroll tallest", tabindex: "0", role: "region", "aria-label": "kernel.py" }, make("table", { class: "plain source" },
    make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, rows)));
  return [
    withHeat ? make("p", { class: "faint" }, `Simulated cycles of one core; the longest bar is the most expensive line. Most expensive: ${dearest(detail)}. Only lines that the compiler names are counted.`) : null,
    table,
    detail.others.length ? grid(["elsewhere", "cycles", "share"], detail.others, [1, 2], "narrow") : null,
  ];
}

function diffLines(detail) {
  if (!detail.diff || !detail.diff.length) return [];
  return diffTable(detail.diff.map(([sign, old, now, place]) => [sign, old, now, detail.lines[place]]), "the champion");
}

// Rows of a diff: sign, old and new number, the line.
function diffTable(rows, against) {
  const signs = { "+": ["added", "added"], "-": ["removed", "removed"], "@": ["hunk", ""], " ": ["", ""] };
  const added = rows.filter((line) => line[0] === "+").length, removed = rows.filter((line) => line[0] === "-").length;
  const body = rows.map(([sign, old, now, runs]) => make("tr", { class: signs[sign][0] },
    make("td", { class: "figure" }, old === null ? "" : String(old)), make("td", { class: "figure" }, now === null ? "" : String(now)),
    make("td", { class: "sign" }, sign === "@" ? "" : sign, signs[sign][1] ? make("span", { class: "hidden" }, signs[sign][1]) : ""),
    make("td", { class: "code" }, code(runs))));
  return [
    make("p", { class: "faint" }, `${added} ${added === 1 ? "line" : "lines"} added, ${removed} removed, against ${against}'s kernel.py`),
    make("div", { class: "scroll tallest", tabindex: "0", role: "region", "aria-label": "diff of kernel.py" }, make("table", { class: "plain source diff" }, make("tbody", {}, body))),
  ];
}

// The width of a lane in its own units: browsers paint nothing that is narrower than a millionth of a unit.
const LANE_WIDTH = 1e4;
const LANE_INKS = { op: "work", step: "edge", transfer: "dma", wait: "stall", stall: "stall", issue: "work" };

// The run of the kept trace, with a lane for each row; without a trace, the command that writes a trace.
function timelineParts(detail) {
  const command = make("code", {}, `./ratchet.sh timeline ${detail.n}`);
  if (!detail.timeline) return [make("p", { class: "faint" }, "There is no trace file here; ", command, " writes one on the machine that has the compiler's dumps.")];
  const link = make("p", {}, make("a", { href: detail.timeline, download: "" }, "the trace file of this run"), ", to open in ui.perfetto.dev");
  const end = Math.max(0, ...detail.lanes.flatMap(([, , spans]) => spans.map(([start, length]) => start + length)));
  if (!end) return [link];
  const lane = ([name, kind, spans]) => [make("span", {}, name), drawn("svg", { class: "lane", viewBox: `0 0 ${LANE_WIDTH} 1`, preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${spans.length} spans` },
    ...spans.map(([start, length, words]) => drawn("rect", { class: LANE_INKS[kind] || "other", x: LANE_WIDTH * start / end, width: LANE_WIDTH * length / end, height: 1 }, drawn("title", {}, `${words}: ${written(start, SECONDS)} to ${written(start + length, SECONDS)}`))))];
  const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => make("span", {}, share ? written(end * share, SECONDS) : "0"));
  return [
    make("p", { class: "faint" }, `Simulated, time of one call. Neighbouring spans too short to see are drawn as one span; point at a span to see its name. Units are shown for some steps only.`),
    make("div", { class: "lanes" }, detail.lanes.flatMap(lane), make("span", {}), make("span", { class: "marks" }, marks)), link,
  ];
}

function contents(detail) {
  const other = detail.against === null || detail.against === undefined ? "" : `attempt ${detail.against}`;
  const failure = detail.failure;
  const known = detail.facts !== undefined;
  return [
    known ? section("Verdict", make("ul", {}, detail.reasons.map((reason) => make("li", {}, reason))),
      failure ? make("p", {}, make("strong", {}, `${failure.stage}, ${failure.kind}: `), failure.message) : null,
      failure && failure.detail ? folded("details of the failure", make("pre", { tabindex: "0" }, failure.detail)) : null) : null,
    known ? section("Expected and actual", expectation(detail)) : null,
    detail.missing.length ? section("Not known", make("ul", {}, detail.missing.map((text) => make("li", {}, text)))) : null,
    known ? section("Change of kernel.py", diffLines(detail)) : null,
    besideAnother(detail),
    detail.search ? section("Search", searchParts(detail.search)) : null,
    known ? section("Where the time goes", timeParts(detail.time, detail.time_note)) : null,
    known && detail.figures.length ? section("Figures", trimmed(["", "here", other ? `champion, ${other}` : "champion", "change"], detail.figures, [1, 2, 3])) : null,
    known && detail.counters.length ? section("Counters", trimmed(["level", "counter", "count", other || "champion", "change", "expected", "remark"], detail.counters, [2, 3, 4], "counters")) : null,
    known && detail.units.length ? section("Units", make("p", { class: "faint" }, "Simulated; shares of the issue slots that the schedule offers, and of the time."), trimmed(["unit", "slots used", "busy"], detail.units, [1, 2], "narrow")) : null,
    section("Lines", kernelLines(detail)),
    known && detail.hints.length ? section("What to try next", make("ol", {}, detail.hints.map(([seen, advice, gain]) => make("li", {}, seen, make("br"), make("strong", {}, advice), gain ? make("span", { class: "faint" }, ` ${gain}`) : "")))) : null,
    section("Timeline", timelineParts(detail)),
    known && detail.checks.length ? section("Correctness", folded(`${detail.checks.filter((check) => check[7] === "passed").length} of ${detail.checks.length} checks passed`,
      trimmed(["inputs", "mode", "shape", "criterion", "error", "honest error", "tolerance", ""], detail.checks, [4, 5, 6]))) : null,
    known && detail.warnings.length ? section("Warnings", make("ul", {}, detail.warnings.map((text) => make("li", {}, text)))) : null,
    known ? section("Record", folded("when, where, with what", make("dl", { class: "facts" }, detail.facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)])))) : null,
  ].filter(Boolean);
}

function startAttempts() {
  startDialog({
    name: "attempt",
    listed: "attempts",
    otherwise: (row) => `./ratchet.sh show ${row.n} prints them.`,
    eyebrow: (row) => [badge(row.outcome, row.verdict), row.champion ? make("span", { class: "star" }, " ★ champion") : ""],
    words: (row) => [make("span", { class: "number" }, `Attempt ${row.n}`), " ", row.hypothesis],
    below: (row) => groupsById.get(row.group).title,
    contents,
    draw: (dialog, detail) => {
      for (const chart of dialog.querySelectorAll("[data-bars]")) drawTime(chart, chart.bars);
      if (detail.search) drawSearch(dialog, detail.search);
    },
  });
}
