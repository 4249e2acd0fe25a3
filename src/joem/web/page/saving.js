// Files to keep, as large as the photo: mask, overlay, cut-out, COCO, and a zip of everything.

import { announce, make } from "./elements.js";
import { palettePng } from "./png.js";

const BAND = 1 << 22; // pixels that are worked on at a time
const OPACITY = 0.6;

export function save(file, name) {
  const link = make("a", { href: URL.createObjectURL(file), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  announce(`Saved ${name}.`);
}

export function mask({ labels, width, height, colours }) {
  return palettePng(labels, width, height, colours);
}

// The photo tinted by class with white outlines and a legend, as `joem predict` draws it.
export function overlay(bitmap, result) {
  const { labels, width, height, names, colours, unseen } = result;
  const present = new Set(labels);
  const entries = names.map((name, label) => ({ name: unseen.includes(name) ? `${name} *` : name, colour: colours[label], label }))
    .filter(({ label }) => present.has(label));
  if (entries.some(({ name }) => name.endsWith(" *"))) entries.push({ name: "* never labelled in training" });
  const size = Math.max(12, Math.min(96, Math.round(width / 28)));
  const { places, needed } = legend(entries, size, width);
  const canvas = new OffscreenCanvas(width, height + needed);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height + needed);
  context.drawImage(bitmap, 0, 0, width, height);
  inBands(context, width, height, (pixels, first, count) => {
    for (let i = first * width, o = 0; i < (first + count) * width; i++, o += 4) {
      const label = labels[i];
      const edge = (i % width && labels[i - 1] !== label) || (i >= width && labels[i - width] !== label);
      for (let c = 0; c < 3; c++) pixels[o + c] = edge ? 255 : (1 - OPACITY) * pixels[o + c] + OPACITY * colours[label][c];
    }
  });
  drawLegend(context, places, size, height);
  return canvas.convertToBlob({ type: "image/png" });
}

function legend(entries, size, width) {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.font = `${size}px sans-serif`;
  let [x, y] = [size / 2, size / 2];
  const places = entries.map(({ name, colour }) => {
    const needed = context.measureText(name).width + 3 * size;
    if (x + needed > width && x > size) [x, y] = [size / 2, y + 1.6 * size];
    const place = { x, y, name, colour };
    x += needed;
    return place;
  });
  return { places, needed: Math.ceil(y + 2 * size) };
}

function drawLegend(context, places, size, top) {
  context.font = `${size}px sans-serif`;
  context.textBaseline = "top";
  for (const { x, y, name, colour } of places) {
    if (colour) {
      context.fillStyle = `rgb(${colour.join(" ")})`;
      context.fillRect(x, top + y, size, size);
    }
    context.fillStyle = "#141414";
    context.fillText(name, x + (colour ? 1.4 * size : 0), top + y);
  }
}

// The photo where it shows a class, transparent elsewhere.
export function cutOut(bitmap, { labels, width, height }, chosen) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0, width, height);
  inBands(context, width, height, (pixels, first, count) => {
    for (let i = 0; i < count * width; i++) if (labels[first * width + i] !== chosen) pixels.fill(0, 4 * i, 4 * i + 4);
  });
  return canvas.convertToBlob({ type: "image/png" });
}

function inBands(context, width, height, work) {
  const rows = Math.max(1, Math.floor(BAND / width));
  for (let first = 0; first < height; first += rows) {
    const count = Math.min(rows, height - first);
    const image = context.getImageData(0, first, width, count);
    work(image.data, first, count);
    context.putImageData(image, 0, first);
  }
}

// What was found, as result.json of the command line has it.
export function summary({ labels, width, height, names, unseen, notes }) {
  const counts = new Float64Array(names.length);
  for (const label of labels) counts[label]++;
  const areas = Object.fromEntries(names.map((name, label) => [name, counts[label] / labels.length]));
  return json({ width, height, names, unseen, notes, areas });
}

export function json(value) {
  return new Blob([JSON.stringify(value, null, 2), "\n"], { type: "application/json" });
}

export function safe(text) {
  return text.replace(/\.[A-Za-z0-9]{1,5}$/, "").replace(/[^\p{L}\p{N} _-]/gu, "_") || "photo";
}
