// The photo, the classes over it in their colours with smooth outlines, their names, and the marks of examples.

import { element, make, rgb } from "./elements.js";
import { edgesOf, paint } from "./paint.js";
import { deepest } from "./places.js";
import * as view from "./view.js";

const stage = element("stage");
const photo = element("photo").getContext("2d");
const tint = element("tint").getContext("2d");
const FAINT = 0.6; // of the tint, for what nobody asked for

let bitmap = null;
let shown = null; // {labels, edges, width, height, names, colours, quiet}
let marks = [];
let waiting = false;

export function showPhoto(given) {
  bitmap?.close();
  bitmap = given;
  shown = null;
  const ratio = Math.min(2.4, Math.max(0.7, given.width / given.height));
  stage.style.setProperty("--ratio", ratio);
  view.resize(stage.clientWidth, stage.clientHeight);
  view.show({ width: given.width, height: given.height });
  element("cross").hidden = true;
  draw();
}

export function pixels() {
  return bitmap;
}

// Labels with a colour each; those in `quiet` are fainter and have no name on the picture.
export function showLabels(labels, { width, height }, names, colours, quiet) {
  shown = labels && { labels, width, height, names, colours, quiet, edges: edgesOf(labels, width, height) };
  if (shown) shown.places = deepest(labels, width, height).filter(({ label }) => label < names.length && !quiet.includes(names[label]));
  draw();
}

export function showMarks(given) {
  marks = given;
  draw();
}

export function showBusy(busy) {
  stage.setAttribute("aria-busy", busy);
}

// Draw when the browser next shows a picture, however often it is asked for.
export function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (!bitmap) return;
    drawPhoto();
    drawTint();
    drawNames();
    drawMarks();
    showShare();
    stage.classList.toggle("zoomed", view.isZoomed());
    element("zoom-fit").disabled = element("zoom-out").disabled = !view.isZoomed();
  });
}

function ratio() {
  return Math.min(2, devicePixelRatio || 1);
}

function fitCanvas({ canvas }) {
  const [width, height] = [stage.clientWidth, stage.clientHeight].map((side) => Math.max(1, Math.round(side * ratio())));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
}

function drawPhoto() {
  fitCanvas(photo);
  const { scale, left, top } = view.get();
  const size = scale * ratio();
  photo.setTransform(size, 0, 0, size, -left * size, -top * size);
  photo.imageSmoothingQuality = "high";
  photo.imageSmoothingEnabled = scale < 4;
  photo.clearRect(left, top, photo.canvas.width / size, photo.canvas.height / size);
  photo.drawImage(bitmap, 0, 0);
}

function drawTint() {
  fitCanvas(tint);
  const { width: across, height: down } = tint.canvas;
  const image = tint.createImageData(across, down);
  const opacity = Number(element("opacity").value) / 100;
  if (shown && opacity) {
    const { scale, left, top } = view.get();
    const fine = shown.width / bitmap.width; // labels per pixel of the photo
    const fills = shown.names.map((name, label) => [
      ...shown.colours[label], Math.round(255 * opacity * (shown.quiet.includes(name) ? FAINT : 1)),
    ]);
    const part = { left: left * fine, top: top * (shown.height / bitmap.height), step: fine / (scale * ratio()) };
    paint(image, shown, part, fills, Math.min(1, 1.5 * opacity), ratio());
  }
  tint.putImageData(image, 0, 0);
}

// Names on their regions, for the eye only: the list of classes says the same to everyone.
function drawNames() {
  const tags = (shown?.places ?? []).map(({ label, x, y }) => {
    const tag = make("span", { textContent: shown.names[label] });
    const at = view.toStage(x * bitmap.width, y * bitmap.height);
    const covered = marks.map((one) => view.toStage(one.x, one.y)).some((one) => Math.abs(one.x - at.x) < 50 && Math.abs(one.y - at.y) < 20);
    place(tag, x * bitmap.width, y * bitmap.height + (covered ? 26 / view.get().scale : 0));
    tag.style.borderColor = rgb(shown.colours[label]);
    return tag;
  });
  element("tags").replaceChildren(...tags);
}

function drawMarks() {
  element("marks").replaceChildren(...marks.map(({ x, y, positive, colour }) => {
    const dot = make("span", { className: positive ? "mark" : "mark not", textContent: positive ? "+" : "−" });
    place(dot, x + 0.5, y + 0.5);
    if (positive) dot.style.background = rgb(colour);
    return dot;
  }));
}

export function place(one, x, y) {
  const at = view.toStage(x, y);
  Object.assign(one.style, { left: `${at.x}px`, top: `${at.y}px` });
}

export function showShare() {
  const hidden = Number(element("compare").value);
  element("compare").setAttribute("aria-valuetext", hidden ? `original on the left ${hidden} %` : "original hidden");
  for (const layer of [tint.canvas, element("tags")]) layer.style.clipPath = `inset(0 0 0 ${hidden}%)`;
  element("tags").hidden = element("opacity").value === "0";
  element("divider").hidden = hidden === 0;
  element("divider").style.left = `${hidden}%`;
}

new ResizeObserver(() => {
  view.resize(stage.clientWidth, stage.clientHeight);
  draw();
}).observe(stage);
