// The parts of every chart: the library, axes, ticks, texts.

// The charting library is large: it is unpacked and run after the table is drawn.
let library = null;

function charts() {
  library ??= new Promise((resolve) => { setTimeout(resolve, 0); }).then(() => unpack("charts")).then((text) => {
    const script = make("script", {});
    script.text = text;
    document.head.append(script);
  });
  return library;
}

const PERFORMED = { displayModeBar: false, responsive: true, doubleClick: "reset" };

// Charts interpret a few tags in their texts; text that people wrote must not become a tag.
function asChartText(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

// The ticks of a logarithmic axis between two values: at 1, 2 and 5 of each decade, written as people write them.
function ticks(low, high, units) {
  const all = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) for (const step of [1, 2, 5]) all.push(step * 10 ** power);
  const inside = all.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  if (inside.length < 3) return between(low, high, units);
  const whole = inside.length > 9 ? inside.filter((value) => /^1/.test(value.toExponential(0))) : inside;
  return { tickvals: whole, ticktext: whole.map((value) => written(value, units)) };
}

// Round values in even steps, for an axis that is too short for 1, 2 and 5.
function between(low, high, units) {
  const step = niceStep((high - low) / 5);
  const first = Math.ceil(low / step);
  const tickvals = Array.from({ length: Math.floor(high / step) - first + 1 }, (_, place) => (first + place) * step);
  return { tickvals, ticktext: tickvals.map((value) => written(value, units)) };
}

// The least of 1, 2, 5 and 10, in the decade of `rough`, that is not below `rough`.
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
}

const SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]];
const RATES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

function written(value, units) {
  const [scale, unit] = units.find(([least]) => value >= least * 0.999) || units.at(-1);
  return `${Number((value / scale).toPrecision(3))} ${unit}`;
}

const isNarrow = () => window.innerWidth < 700;

function plain(extra) {
  const ink = colour("ink");
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("faint") },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: ink }, align: "left" },
    hovermode: "closest",
    dragmode: isNarrow() ? false : "zoom",
    showlegend: true,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: ink } },
    ...extra,
  };
}

function axis(title, extra) {
  return {
    title: { text: title, standoff: 8 },
    gridcolor: colour("grid"),
    linecolor: colour("line"),
    zeroline: false,
    ticks: "outside",
    tickcolor: colour("line"),
    fixedrange: isNarrow(),
    ...extra,
  };
}

// A whole-number step that divides a span into about ten.
function wholeStep(span) {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(1, span / 10))));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => span / step <= 12) || 10 * power;
}

// About five even ticks from nothing to `high` seconds.
function evenly(high) {
  const step = niceStep(high / 5);
  const tickvals = Array.from({ length: Math.floor(high / step) + 1 }, (_, place) => place * step);
  const [scale, unit] = SECONDS.find(([least]) => high >= least) || SECONDS.at(-1);
  return { tickvals, ticktext: tickvals.map((value) => `${Number((value / scale).toPrecision(3))} ${unit}`) };
}
