// The chart that the page opens on: the best time so far over all keys, as a share of the first champion's.

const { story } = overview;
const SHARES = [[1e-2, "%"]];

function storyWords() {
  byId("story-words").textContent = story.words.join(" ");
  byId("story").setAttribute("aria-label", `Best time so far over ${attempts(overview.rows.length)}: ${story.words[0]}`);
  byId("changes").hidden = !story.table.length;
  byId("changes").querySelector("summary").textContent = story.table.length === 1 ? "The key changed once" : `The key changed ${story.table.length} times`;
  byId("changes").append(trimmed(["from attempt", "key", "what changed", "champion", "its time before", "judged again", "change"], story.table, [0, 4, 5, 6]));
}

// Where the line begins again it has a gap.
function storyLine(last) {
  const x = [], y = [];
  for (const [number, , share, begins] of story.levels) {
    if (begins && x.length) { x.push(number, number); y.push(y.at(-1), null); }
    x.push(number);
    y.push(share);
  }
  return { type: "scatter", mode: "lines", name: "best so far", hoverinfo: "skip", x: [...x, last], y: [...y, y.at(-1)], line: { shape: "hv", color: colour("accept"), width: 2 } };
}

function drawStory() {
  const { rows } = overview;
  const [first, last] = [rows[0].n, rows.at(-1).n];
  const known = rows.filter((row) => row.id in story.shares);
  const share = (row) => story.shares[row.id];
  const traces = story.levels.length ? [storyLine(last)] : [];
  const isCrowded = known.length > MOST_BARS;
  for (const outcome of DRAWN) {
    if (!known.some((row) => row.outcome === outcome)) continue;
    traces.push(points(known, outcome, (row) => row.n, (row) => share(row)[0], (own) => ((isCrowded && outcome !== "accept") || own.every((row) => share(row)[1] === null) ? {} : { error_y: {
      type: "data", symmetric: false, thickness: 1, width: 3, color: colour("faint"),
      arrayminus: own.map((row) => share(row)[0] - (share(row)[1] ?? share(row)[0])), array: own.map((row) => (share(row)[2] ?? share(row)[0]) - share(row)[0]),
    } })));
  }
  const failed = rows.filter((row) => row.values.seconds === null);
  for (const outcome of DRAWN) {
    if (!failed.some((row) => row.outcome === outcome)) continue;
    traces.push(points(failed, outcome, (row) => row.n, () => 0.5, () => ({ yaxis: "y2", name: outcome === "failed" ? "failed, no latency" : `${WORDS[outcome]}, no latency` })));
  }
  const all = known.flatMap((row) => share(row).filter((value) => value !== null));
  const [low, high] = [Math.min(...all, 0.95) / 1.12, Math.max(...all, 1) * 1.12];
  const wide = ((byId("story").clientWidth || 600) - 90) / Math.max(1, last - first + 1);
  // A word beside a line needs room: where keys follow each other closely the table below has them all.
  let free = -Infinity;
  const annotations = story.changes.filter(([number]) => {
    const at = number * wide;
    if (at < free) return false;
    free = at + 17;
    return true;
  }).map(([number, short]) => ({ x: number - 0.5, xref: "x", yref: "paper", y: failed.length ? 0.92 : 1, yanchor: "top", xanchor: "left", textangle: -90, showarrow: false, text: asChartText(short), font: { size: 11, color: colour("faint") } }));
  return Plotly.react("story", traces, plain({
    margin: { l: 74, r: 12, t: isNarrow() ? 96 : 40, b: 44 }, annotations,
    shapes: story.changes.map(([number]) => ({ type: "line", x0: number - 0.5, x1: number - 0.5, yref: "paper", y0: 0, y1: 1, layer: "below", line: { dash: "dot", width: 1, color: colour("line") } })),
    xaxis: axis("attempt (number)", { tickformat: "d", dtick: wholeStep(last - first), range: [first - 0.7, last + 0.7] }),
    yaxis: axis(story.against ? `time, % of attempt ${asChartText(story.against)}'s` : "time, %", { type: "log", domain: [0, failed.length ? 0.92 : 1], range: [Math.log10(low), Math.log10(high)], fixedrange: true, ...ticks(low, high, SHARES) }),
    yaxis2: { domain: [0.94, 1], range: [0, 1], visible: false, fixedrange: true },
  }), PERFORMED);
}
