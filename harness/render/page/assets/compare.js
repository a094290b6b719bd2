// Two attempts compared, as by `diff A B`: time, figures, parts, lines next to their counterparts, texts.

// With more pairs of lines than this, lines are not aligned one by one: the texts have little in common then.
const MOST_PAIRS = 4e6;
const CONTEXT = 3;
// A line whose cycles moved by less than this share of the run explains nothing.
const NOTABLE = 0.001;
const LINES_SHOWN = 12;

const textOf = (detail, index) => detail.lines[detail.kernel[index]].map((run) => run[1]).join("");

// Each line of either text once, as [old, new]: equal lines are a pair, any other line stands with null.
function alignedLines(before, after) {
  const [a, b] = [before, after].map((detail) => detail.kernel.map((_, index) => textOf(detail, index)));
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const [high, wide] = [a.length - head - tail, b.length - head - tail];
  const pairs = Array.from({ length: head }, (_, index) => [index, index]);
  if (high * wide > MOST_PAIRS) {
    for (let index = 0; index < high; index += 1) pairs.push([head + index, null]);
    for (let index = 0; index < wide; index += 1) pairs.push([null, head + index]);
  } else {
    // The longest common subsequence, from the ends.
    const step = wide + 1, longest = new Uint16Array((high + 1) * step);
    for (let i = high - 1; i >= 0; i -= 1) for (let j = wide - 1; j >= 0; j -= 1) {
      longest[i * step + j] = a[head + i] === b[head + j] ? longest[(i + 1) * step + j + 1] + 1 : Math.max(longest[(i + 1) * step + j], longest[i * step + j + 1]);
    }
    let [i, j] = [0, 0];
    while (i < high || j < wide) {
      if (i < high && j < wide && a[head + i] === b[head + j]) { pairs.push([head + i, head + j]); i += 1; j += 1; }
      else if (j >= wide || (i < high && longest[(i + 1) * step + j] >= longest[i * step + j + 1])) { pairs.push([head + i, null]); i += 1; }
      else { pairs.push([null, head + j]); j += 1; }
    }
  }
  for (let index = tail; index > 0; index -= 1) pairs.push([a.length - index, b.length - index]);
  return pairs;
}

const isSame = ([old, now]) => old !== null && now !== null;

// Lines that were rewritten in place are paired in their order: the first with the first.
function likes(pairs) {
  const found = [], gone = [], came = [];
  const flush = () => { while (gone.length || came.length) found.push([gone.shift() ?? null, came.shift() ?? null]); };
  for (const pair of pairs) {
    if (isSame(pair)) { flush(); found.push(pair); } else if (pair[1] === null) gone.push(pair[0]); else came.push(pair[1]);
  }
  flush();
  return found;
}

// The texts as rows of a diff, with the lines around each change.
function diffRows(before, after, pairs) {
  const near = pairs.map(() => false);
  pairs.forEach((pair, at) => { if (!isSame(pair)) for (let k = Math.max(0, at - CONTEXT); k <= Math.min(pairs.length - 1, at + CONTEXT); k += 1) near[k] = true; });
  const rows = [];
  pairs.forEach((pair, at) => {
    if (!near[at]) return;
    const [old, now] = pair.map((index) => (index === null ? null : index + 1));
    if (at && !near[at - 1]) rows.push(["@", null, null, [["", "…"]]]);
    const runs = now === null ? before.lines[before.kernel[old - 1]] : after.lines[after.kernel[now - 1]];
    rows.push([isSame(pair) ? " " : now === null ? "-" : "+", old, now, runs]);
  });
  return rows;
}

const whole = (value) => Math.round(value).toLocaleString("en-US");
const moved = (before, after) => (before && after ? `${after >= before ? "+" : ""}${(100 * (after / before - 1)).toFixed(1)}%` : "");
const BYTES = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];

function amount([name, unit], value) {
  if (value === null) return "-";
  if (name === "VMEM") return value < 2 ** 20 ? `${(value / 1024).toFixed(1)} KiB` : `${(value / 2 ** 20).toFixed(2)} MiB`;
  return unit === "B" ? written(value, BYTES) : whole(value);
}

// Cycles and spills of each line that has cycles in either attempt, the largest changes first.
function lineRows(before, after, pairs) {
  const cycles = (cells) => (cells ? Number(cells[1].replaceAll(",", "")) : 0);
  const rows = likes(pairs).flatMap(([old, now]) => {
    const [was, is] = [old === null ? undefined : before.heat[old + 1], now === null ? undefined : after.heat[now + 1]];
    if (!was && !is) return [];
    const where = now === null ? `${old + 1} gone` : old === null ? `${now + 1} new` : old === now ? `${now + 1}` : `${old + 1} → ${now + 1}`;
    return [[where, cycles(was), cycles(is), was ? was[4] : "", is ? is[4] : "", (now === null ? textOf(before, old) : textOf(after, now)).trim()]];
  });
  const names = new Set([...before.others, ...after.others].map((line) => line[0]));
  for (const name of names) {
    const [was, is] = [before, after].map((detail) => detail.others.find((line) => line[0] === name));
    rows.push([name, ...[was, is].map((line) => (line ? Number(line[1].replaceAll(",", "")) : 0)), "", "", ""]);
  }
  const total = rows.reduce((sum, row) => sum + row[2], 0);
  const notable = rows.filter((row) => Math.abs(row[2] - row[1]) > NOTABLE * total).sort((a, b) => Math.abs(b[2] - b[1]) - Math.abs(a[2] - a[1]));
  return notable.map(([where, was, is, spilled, spills, text]) => [where, whole(was), whole(is), `${is >= was ? "+" : ""}${whole(is - was)}`, spilled, spills, make("span", { class: "code" }, text)]);
}

function timeWords(before, after) {
  const [old, now] = [before, after].map((detail) => rowsById.get(detail.id));
  const time = (row) => (row.values.seconds === null ? row.verdict : `${row.texts.seconds} ms`);
  const label = groupsById.get(now.group).label;
  const then = old.recorded === now.recorded ? "" : `. The figures below were recorded under two keys, ${old.recorded} and ${now.recorded}: times and cycles among them are not comparable`;
  if (old.group === now.group) return `${time(old)} → ${time(now)}, ${moved(old.values.seconds, now.values.seconds) || "not comparable"} [${label}]${then}`;
  return `Not compared: attempt ${old.n} was judged under key ${old.group} (${time(old)}, ${groupsById.get(old.group).label}), attempt ${now.n} under ${now.group} (${time(now)}, ${label}).`;
}

function comparison(before, after) {
  const names = [before, after].map((detail) => `attempt ${detail.n}`);
  const parts = [make("p", {}, timeWords(before, after))];
  if (before.compared && after.compared) {
    const rows = overview.figures.map((figure, at) => [figure[0], ...[before, after].map((detail) => amount(figure, detail.compared[at])), moved(before.compared[at], after.compared[at])]).filter((row) => row[1] !== "-" || row[2] !== "-");
    if (rows.length) parts.push(make("h4", {}, "Figures"), grid(["", ...names, "change"], rows, [1, 2, 3]));
  }
  const [was, is] = [before, after].map((detail) => (detail.time ? detail.time[0] : null));
  if (was && is) parts.push(make("h4", {}, "Where the time goes"), ...timeParts([is, was], after.time_note));
  const pairs = alignedLines(before, after);
  const lines = before.kernel.length && after.kernel.length ? lineRows(before, after, pairs) : [];
  if (lines.length) {
    const table = (rows) => trimmed(["line", "cycles", "cycles now", "change", "spilled per step", "spilled now", "kernel.py"], rows, [1, 2, 3, 4, 5], "moved");
    parts.push(make("h4", {}, `Lines, ${names.join(" → ")}, simulated cycles`), table(lines.slice(0, LINES_SHOWN)));
    if (lines.length > LINES_SHOWN) parts.push(folded(`${lines.length - LINES_SHOWN} more lines`, table(lines.slice(LINES_SHOWN))));
  }
  parts.push(make("h4", {}, `kernel.py, ${names.join(" → ")}`));
  if (!before.kernel.length || !after.kernel.length) parts.push(make("p", { class: "faint" }, "At least one of the two kernels is not in this clone."));
  else if (pairs.every(isSame)) parts.push(make("p", { class: "faint" }, "The texts are the same."));
  else parts.push(...diffTable(diffRows(before, after, pairs), names[0]));
  return parts;
}

// The section in which another attempt is chosen; an attempt that `beside` names is chosen already.
function besideAnother(detail) {
  const others = overview.rows.filter((row) => row.id !== detail.id);
  if (!others.length) return null;
  const choice = make("select", { id: "beside" }, make("option", { value: "" }, "no attempt"),
    others.map((row) => make("option", { value: row.id, selected: row.id === opened.beside }, `${row.n} ${row.verdict}: ${row.hypothesis.slice(0, 60)}`)));
  const place = make("div", { id: "comparison" });
  const show = async () => {
    const id = choice.value;
    opened.beside = id || null;
    if (!id) { place.replaceChildren(); return; }
    const other = await detailOf(id);
    if (opened.beside !== id) return;
    place.replaceChildren(...comparison(other, detail));
    drawOpen();
  };
  choice.addEventListener("change", () => {
    history.replaceState(null, "", `#${opened.name}-${detail.id}${choice.value ? `~${choice.value}` : ""}`);
    show();
  });
  if (opened.beside) show().then(() => place.closest("section").scrollIntoView());
  return section("Compared with another attempt", make("label", { class: "beside" }, "Compare with", choice), place);
}
