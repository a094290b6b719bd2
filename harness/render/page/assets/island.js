"use strict";
// Elements and data. Text stays text: no script of the page parses markup.

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// The same for elements of SVG.
function drawn(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

const attempts = (number) => (number === 1 ? "1 attempt" : `${number} attempts`);

const byId = (id) => document.getElementById(id);

const overview = JSON.parse(byId("overview").textContent);
const rowsById = new Map(overview.rows.map((row, place) => [row.id, { ...row, place }]));

const unpacked = new Map();

// The details of a row, unpacked when first asked for, together with those of its neighbours.
async function detailOf(id) {
  const number = Math.floor(rowsById.get(id).place / overview.chunk);
  if (!unpacked.has(number)) unpacked.set(number, unpack(`chunk-${number}`).then(JSON.parse));
  const { details, lines } = await unpacked.get(number);
  return { ...details.find((detail) => detail.id === id), lines };
}

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const signs = atob(text);
  const bytes = new Uint8Array(signs.length);
  for (let place = 0; place < signs.length; place += 1) bytes[place] = signs.charCodeAt(place);
  return bytes;
}

// The text in a compressed island.
async function unpack(id) {
  const stream = new Blob([bytesOf(byId(id).textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function section(title, ...children) {
  const inside = children.flat().filter(Boolean);
  return inside.length ? make("section", {}, make("h3", {}, title), ...inside) : null;
}

function folded(title, ...children) {
  return make("details", {}, make("summary", {}, title), ...children);
}

function grid(heads, rows, figures, className) {
  return make("div", { class: "scroll" }, make("table", { class: `plain ${className || ""}` },
    make("thead", {}, make("tr", {}, heads.map((head, place) => make("th", { scope: "col", class: figures.includes(place) ? "figure" : "" }, head)))),
    make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map((cell, place) => make(place ? "td" : "th", { scope: place ? null : "row", class: figures.includes(place) ? "figure" : "" }, cell)))))));
}

// Columns that are empty in every row are left out.
function trimmed(heads, rows, figures, className) {
  const kept = heads.map((_, place) => place).filter((place) => rows.some((row) => row[place] !== "" && row[place] !== null));
  return grid(kept.map((place) => heads[place]), rows.map((row) => kept.map((place) => row[place] ?? "")),
    kept.map((place, at) => (figures.includes(place) ? at : -1)).filter((at) => at >= 0), className);
}

// Figures at a glance: the name, the figure, a remark.
function tilesOf(tiles) {
  return tiles.map(([name, figure, words]) => make("div", {}, make("dt", {}, name), make("dd", {}, make("strong", {}, figure), words ? make("span", {}, words) : "")));
}
