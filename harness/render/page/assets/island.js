"use strict";
// Elements and data. Text only ever becomes text: nothing here, or after it, parses markup.

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

const byId = (id) => document.getElementById(id);

const overview = JSON.parse(byId("overview").textContent);
const rowsById = new Map(overview.rows.map((row, place) => [row.id, { ...row, place }]));
const groupsById = new Map(overview.groups.map((group) => [group.id, group]));

const unpacked = new Map();

// The details of an attempt, unpacked when first asked for, with its neighbours.
async function detailOf(id) {
  const number = Math.floor(rowsById.get(id).place / overview.chunk);
  if (!unpacked.has(number)) unpacked.set(number, unpack(`chunk-${number}`).then(JSON.parse));
  const { attempts, lines } = await unpacked.get(number);
  return { ...attempts.find((attempt) => attempt.id === id), lines };
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

const SYMBOLS = { accept: "●", reject: "◇", inconclusive: "○", failed: "✕" };

function badge(outcome, words) {
  return make("span", { class: `badge ${outcome}` }, make("span", { "aria-hidden": "true" }, SYMBOLS[outcome]), ` ${words}`);
}
