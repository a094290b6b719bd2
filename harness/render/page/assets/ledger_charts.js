// The charts of a ledger: progress, roofline, and where the time of an attempt goes. Only attempts under one key share
// an axis.

const OUTCOMES = ["accept", "reject", "inconclusive", "failed"];
// Accepted attempts are drawn last, over the others.
const DRAWN = [...OUTCOMES].reverse();
const WORDS = { accept: "accepted", reject: "rejected", inconclusive: "inconclusive", failed: "failed" };
const MARKERS = { accept: "circle", reject: "diamond-open", inconclusive: "circle-open", failed: "x-thin-open" };
// UNDONE marks an accept that was taken back, and the undo or revoke that did it; REVOKED marks an accept that lost its
// title because it fails.
const UNDONE = "square-open";
const REVOKED = "x-open";
// Kinds of time, each with a colour and a pattern: the pattern alone tells them apart.
const PATTERNS = { work: "", bubble: ".", stall: "/", dma: "\\", edge: "-", other: "|" };
// With more attempts than this, bars of uncertainty would hide the points: only accepted attempts keep theirs.
const MOST_BARS = 150;

function pointed(row) {
  const words = row.hypothesis.length > 90 ? `${row.hypothesis.slice(0, 89)}…` : row.hypothesis;
  const broken = words.replace(/(.{40,}?) /g, "$1\n");
  return `<b>attempt ${row.n}</b> ${asChartText(row.says)}<br>${asChartText(broken).replaceAll("\n", "<br>")}`;
}

// If there are many points, they are smaller, and those of attempts that were not accepted are paler.
function marker(outcome, isCrowded) {
  const kept = outcome === "accept";
  return {
    symbol: MARKERS[outcome], size: (kept ? 9 : 8) - (isCrowded ? 3 : 0), color: colour(outcome),
    opacity: isCrowded && !kept ? 0.5 : 1, line: { width: kept ? 1 : isCrowded ? 1.1 : 1.8, color: colour(outcome) },
  };
}

function points(rows, outcome, x, y, extra) {
  const own = rows.filter((row) => row.outcome === outcome);
  return {
    type: "scatter", mode: "markers", name: WORDS[outcome], legendgroup: outcome, legendrank: OUTCOMES.indexOf(outcome),
    marker: { ...marker(outcome, rows.length > MOST_BARS), color: own.map((row) => colour(row.revoked ? "failed" : outcome)), symbol: own.map((row) => (row.revoked ? REVOKED : row.undone ? UNDONE : MARKERS[outcome])) },
    x: own.map(x), y: own.map(y), customdata: own.map((row) => row.id), text: own.map(pointed),
    hovertemplate: "%{text}<extra></extra>", ...extra(own),
  };
}

function drawProgress(group, rows) {
  const timed = rows.filter((row) => row.values.seconds !== null);
  const last = rows[rows.length - 1].n;
  const traces = [];
  const champions = (key, yaxis) => ({
    type: "scatter", mode: "lines", name: "champion", legendgroup: "champion", showlegend: yaxis === "y", hoverinfo: "skip",
    line: { shape: "hv", color: colour("accept"), width: 1.6 }, opacity: 0.7, yaxis,
    // The champion of another key stands before the first attempt under this key.
    x: [...group.steps.map((step) => (step.before ? step.n - 0.5 : step.n)), last], y: [...group.steps.map((step) => step[key]), group.steps.at(-1)[key]],
  });
  if (group.steps.length) traces.push(champions("s", "y"), champions("score", "y2"));
  const bars = (outcome, own, low, high) => ((timed.length > MOST_BARS && outcome !== "accept") || own.every((row) => row.pm === null) ? {} : { error_y: {
    type: "data", symmetric: false, thickness: 1, width: 3, color: colour("faint"), arrayminus: own.map(low), array: own.map(high),
  } });
  for (const outcome of DRAWN) {
    if (!timed.some((row) => row.outcome === outcome)) continue;
    traces.push(points(timed, outcome, (row) => row.n, (row) => row.values.seconds, (own) => bars(outcome, own, (row) => row.pm || 0, (row) => row.pm || 0)));
    traces.push(points(timed, outcome, (row) => row.n, (row) => row.values.score, (own) => ({
      yaxis: "y2", showlegend: false,
      ...bars(outcome, own, (row) => (row.scores ? row.values.score - row.scores[0] : 0), (row) => (row.scores ? row.scores[1] - row.values.score : 0)),
    })));
  }
  const untimed = rows.filter((row) => row.values.seconds === null);
  for (const outcome of DRAWN) {
    if (!untimed.some((row) => row.outcome === outcome)) continue;
    traces.push(points(untimed, outcome, (row) => row.n, () => 0.5, () => ({
      yaxis: "y3", name: outcome === "failed" ? "failed, no latency" : `${WORDS[outcome]}, no latency`, showlegend: true,
    })));
  }
  const shapes = [], annotations = [];
  const scores = timed.map((row) => (row.scores ? row.scores[1] : row.values.score)).concat(group.steps.map((step) => step.score));
  const highest = Math.max(0, ...scores.filter((score) => score !== null));
  const times = timed.flatMap((row) => [row.values.seconds + (row.pm || 0), Math.max(row.values.seconds / 3, row.values.seconds - (row.pm || 0))]).concat(group.steps.map((step) => step.s));
  const across = { type: "line", xref: "paper", x0: 0, x1: 1, line: { dash: "dot", width: 1.4, color: colour("floor") } };
  const said = { xref: "paper", x: 0, xanchor: "left", showarrow: false, font: { color: colour("floor"), size: 11 } };
  let mostScore = highest;
  if (group.floor) {
    times.push(group.floor.s * 0.8);
    shapes.push({ ...across, yref: "y", y0: group.floor.s, y1: group.floor.s });
    annotations.push({ ...said, yref: "y", y: Math.log10(group.floor.s), yanchor: "top", text: asChartText(group.floor.text) });
    const words = `score at the floor ${Math.round(group.floor.score).toLocaleString("en")}`;
    // A line far above all points would flatten their plot: then words state its score instead.
    if (group.floor.score < 8 * highest) {
      mostScore = Math.max(highest, group.floor.score * 1.12);
      shapes.push({ ...across, yref: "y2", y0: group.floor.score, y1: group.floor.score });
      annotations.push({ ...said, yref: "y2", y: group.floor.score, yanchor: "bottom", text: words });
    } else annotations.push({ ...said, yref: "paper", y: 0.34, yanchor: "top", text: `${words}, above this chart` });
  }
  const [low, high] = times.length ? [Math.min(...times) / 1.1, Math.max(...times) * 1.15] : [1e-4, 1e-2];
  const top = untimed.length ? 0.93 : 1;
  return Plotly.react("progress", traces, plain({
    margin: { l: 92, r: 12, t: 54, b: 44 },
    shapes, annotations,
    xaxis: axis("attempt", { tickformat: "d", dtick: wholeStep(last - rows[0].n), anchor: "y2", showgrid: false }),
    yaxis: axis("latency", { type: "log", domain: [0.42, top], range: [Math.log10(low), Math.log10(high)], fixedrange: true, ...ticks(low, high, SECONDS) }),
    yaxis2: axis("score", { domain: [0, 0.34], range: [0, mostScore * 1.06 || 1], nticks: 5, tickformat: ",d", fixedrange: true }),
    yaxis3: { domain: [0.955, 1], range: [0, 1], visible: false, fixedrange: true },
  }), PERFORMED);
}

function drawRoofline(group, rows) {
  const placed = rows.filter((row) => row.intensity !== null && row.flops !== null);
  const { flops, bytes, ridge } = group.roof;
  const intensities = placed.map((row) => row.intensity).concat([ridge], group.minimum_intensity ? [group.minimum_intensity] : [], group.standing?.intensity || []);
  const left = Math.min(...intensities) / 4, right = Math.max(...intensities) * 3;
  const lowest = Math.min(bytes * left, ...placed.map((row) => row.flops)) / 2;
  const x = [left, ridge, right], y = [bytes * left, flops, flops];
  const traces = [{ type: "scatter", mode: "lines", name: "roof", showlegend: false, x, y, hoverinfo: "skip", line: { color: colour("ink"), width: 1.8 } }];
  for (const outcome of DRAWN) {
    if (!placed.some((row) => row.outcome === outcome)) continue;
    traces.push(points(placed, outcome, (row) => row.intensity, (row) => row.flops, () => ({})));
  }
  const standing = group.standing && group.standing.intensity !== null && group.standing.flops !== null ? group.standing : null;
  if (standing && standing.before) {
    traces.push({ type: "scatter", mode: "markers", name: "champion before", x: [standing.intensity], y: [standing.flops], customdata: [standing.id],
      marker: { symbol: "star", size: 11, color: colour("accept") }, hovertemplate: `attempt ${standing.id}, evaluated again under this key<extra></extra>` });
  }
  // A place where the champion's label covers no point, no line and no other label, if such a place exists.
  const freePlace = () => {
    const box = byId("roofline"), wide = (box.clientWidth || 500) - 86, high = (box.clientHeight || 460) - 98;
    const top = Math.log10(flops * 1.6);
    const place = (at) => [wide * Math.log10(at[0] / left) / Math.log10(right / left), high * (top - Math.log10(at[1])) / (top - Math.log10(lowest))];
    const [px, py] = place([standing.intensity, standing.flops]);
    const taken = placed.map((row) => place([row.intensity, row.flops])).map(([x0, y0]) => [x0 - 8, x0 + 8, y0 - 8, y0 + 8]);
    for (const at of [ridge, group.minimum_intensity || ridge]) taken.push([place([at, flops])[0] - 14, place([at, flops])[0] + 14, 0, high]);
    const [mx, my] = place([middle, bytes * middle]);
    taken.push([mx, mx + 90, my, my + 34], [wide - 160, wide, place([right, flops])[1] - 22, place([right, flops])[1] + 4]);
    for (let share = 0; share <= 1; share += 0.05) {
      const [x0, y0] = place([left * (ridge / left) ** share, bytes * left * (ridge / left) ** share]);
      taken.push([x0 - 3, x0 + 3, y0 - 3, y0 + 3]);
    }
    const half = [66, 10];
    const cover = ([ax, ay]) => {
      const [x0, x1, y0, y1] = [px + ax - half[0], px + ax + half[0], py + ay - half[1], py + ay + half[1]];
      const outside = x0 < 0 || x1 > wide || y0 < 0 || y1 > high ? 3 : 0;
      const under = (spot) => taken.some(([a, b, c, d]) => spot[0] > a && spot[0] < b && spot[1] > c && spot[1] < d);
      const crossed = [0.4, 0.6, 0.8].filter((share) => under([px + ax * share, py + ay * share])).length / 4;
      return outside + crossed + taken.filter(([a, b, c, d]) => x0 < b && x1 > a && y0 < d && y1 > c).length;
    };
    // Of equally good places the nearest is taken: a pixel of distance counts for little.
    const tried = [0, -40, 40, -75, 75, -115, 115, -150, 150].flatMap((ax) => [34, -34, 52, -52, 76, -76, 110].map((ay) => [ax, ay]));
    const worth = tried.map((one) => cover(one) + Math.hypot(...one) / 1000);
    const [ax, ay] = tried[worth.indexOf(Math.min(...worth))];
    return { ax, ay };
  };
  const note = (at, text, extra) => ({ x: Math.log10(at[0]), y: Math.log10(at[1]), text, showarrow: false, font: { size: 11, color: colour("ink") }, ...extra });
  const faint = { font: { size: 11, color: colour("faint") } };
  const middle = left * (ridge / left) ** 0.35;
  const annotations = [
    note([right, flops], `compute roof ${group.roof.flops_text}`, { xanchor: "right", yanchor: "bottom", yshift: 2, bgcolor: colour("paper"), borderpad: 0 }),
    note([middle, bytes * middle], `memory roof<br>${group.roof.bytes_text}`, { xanchor: "left", yanchor: "top", xshift: 6, align: "left" }),
    note([ridge, lowest], `ridge ${group.roof.ridge_text}`, { xanchor: "left", yanchor: "bottom", xshift: 1, textangle: -90, ...faint }),
  ];
  if (standing) annotations.push(note([standing.intensity, standing.flops], `champion, attempt ${standing.id}`, { showarrow: true, arrowcolor: colour("faint"), arrowhead: 0, bgcolor: colour("paper"), borderpad: 1, ...freePlace() }));
  const line = (at, dash) => ({ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { dash, width: 1, color: colour("faint") } });
  const shapes = [line(ridge, "dot")];
  if (group.minimum_intensity) {
    shapes.push(line(group.minimum_intensity, "dash"));
    annotations.push(note([group.minimum_intensity, lowest], "every array once", { xanchor: "right", yanchor: "bottom", xshift: -1, textangle: -90, ...faint }));
  }
  return Plotly.react("roofline", traces, plain({
    margin: { l: 74, r: 12, t: 54, b: 44 },
    shapes, annotations,
    xaxis: axis("useful FLOP per byte of HBM traffic", { type: "log", range: [Math.log10(left), Math.log10(right)], dtick: 1, tickformat: "~s" }),
    yaxis: axis("useful FLOP/s", { type: "log", range: [Math.log10(lowest), Math.log10(flops * 1.6)], ...ticks(lowest, flops * 1.6, RATES) }),
  }), PERFORMED);
}

// One horizontal bar for each run; its pieces add up to the run.
function drawTime(element, bars) {
  const seen = new Map();
  for (const bar of bars) for (const [kind, name] of bar.pieces) seen.set(name, kind);
  const traces = [...seen].map(([name, kind]) => {
    const piece = (bar) => bar.pieces.find((own) => own[1] === name);
    return {
      type: "bar", orientation: "h", name: asChartText(name), y: bars.map((bar) => bar.name), x: bars.map((bar) => (piece(bar) || [0, 0, 0])[2]),
      text: bars.map((bar) => (piece(bar) || [0, 0, 0, "", ""])[4]), textposition: "inside", insidetextanchor: "middle", textangle: 0, constraintext: "inside",
      insidetextfont: { color: colour("on-piece") },
      customdata: bars.map((bar) => (piece(bar) || [0, 0, 0, "none"])[3]),
      hovertemplate: `${asChartText(name)}: %{customdata} (%{text})<extra></extra>`,
      marker: { color: colour(`piece-${kind}`), line: { width: 1, color: colour("paper") }, pattern: { shape: PATTERNS[kind], size: 6, solidity: 0.25, fgcolor: colour("paper"), fillmode: "overlay" } },
    };
  });
  return Plotly.newPlot(element, traces, plain({
    barmode: "stack", bargap: 0.35, showlegend: false, dragmode: false,
    height: 70 + 52 * bars.length,
    margin: { l: 8, r: 12, t: 6, b: 40 },
    xaxis: axis("time of one call", { ...evenly(Math.max(...bars.map((bar) => bar.pieces.reduce((sum, piece) => sum + piece[2], 0)))), fixedrange: true }),
    yaxis: { autorange: "reversed", automargin: true, fixedrange: true, tickfont: { color: colour("ink") } },
  }), PERFORMED);
}
