// What a pointer, fingers and keys do on the stage: look at a pixel, mark places, move, zoom.

import { element, make } from "./elements.js";
import * as stage from "./stage.js";
import * as view from "./view.js";

const box = element("stage");
const CLICK = 5; // pixels that a click may slip
const MOST = 12; // points that a stroke becomes
const cross = { x: 0, y: 0 };
const pointers = new Map(); // those that are down, with where they were last
let stroke = null; // places on the photo
let panning = false;

// `visit(x, y, byKeyboard)` is called with the pixel that is looked at, `mark(points, byTouch)` with those to be named.
export function onPointing(visit, mark) {
  box.addEventListener("pointermove", (event) => moved(event, visit));
  box.addEventListener("pointerdown", (event) => pressed(event, visit));
  box.addEventListener("pointerup", (event) => released(event, mark));
  box.addEventListener("pointercancel", (event) => forget(event));
  box.addEventListener("wheel", wheel, { passive: false });
  box.addEventListener("focus", ({ relatedTarget }) => {
    const returned = relatedTarget?.closest("#naming"); // from naming what is marked already
    if (!returned && element("cross").hidden && box.matches(":focus-visible")) look(view.photo.width >> 1, view.photo.height >> 1, visit, true);
  });
  box.addEventListener("keydown", (event) => key(event, visit, mark));
  for (const [id, act] of Object.entries({ "zoom-in": () => view.step(true), "zoom-out": () => view.step(false), "zoom-fit": view.fit })) {
    element(id).addEventListener("click", () => change(act));
  }
}

export function showCross() {
  stage.place(element("cross"), cross.x + 0.5, cross.y + 0.5);
}

export function isMoving() {
  return element("tool-move").getAttribute("aria-pressed") === "true";
}

function change(act) {
  act();
  showCross();
  stage.draw();
}

function look(x, y, visit, byKeyboard) {
  cross.x = Math.min(Math.max(x, 0), view.photo.width - 1);
  cross.y = Math.min(Math.max(y, 0), view.photo.height - 1);
  if (byKeyboard) change(() => view.reveal(cross.x, cross.y));
  else showCross();
  element("cross").hidden = false;
  visit(cross.x, cross.y, byKeyboard);
}

function place(event) {
  const { left, top } = box.getBoundingClientRect();
  return { x: event.clientX - left, y: event.clientY - top };
}

function onPhoto({ x, y }) {
  const at = view.toPhoto(x, y);
  const found = { x: Math.floor(at.x), y: Math.floor(at.y) };
  return found.x >= 0 && found.y >= 0 && found.x < view.photo.width && found.y < view.photo.height ? found : null;
}

function pressed(event, visit) {
  const at = place(event);
  if (event.target.closest("button, input")) return;
  pointers.set(event.pointerId, at);
  const found = onPhoto(at);
  if (found) look(found.x, found.y, visit, false);
  const touch = event.pointerType === "touch";
  panning = pointers.size > 1 || event.button === 1 || isMoving() || (touch && view.isZoomed());
  stroke = pointers.size === 1 && event.button === 0 && found && !isMoving() ? [{ ...found, at }] : null;
  if (!touch || view.isZoomed()) box.setPointerCapture(event.pointerId);
}

function moved(event, visit) {
  const at = place(event);
  const before = pointers.get(event.pointerId);
  const found = onPhoto(at);
  if (!before) {
    if (found) look(found.x, found.y, visit, false);
    return;
  }
  if (pointers.size === 2) pinch(event.pointerId, before, at);
  else if (panning) change(() => view.pan(at.x - before.x, at.y - before.y));
  else if (stroke && found && event.pointerType !== "touch") {
    stroke.push({ ...found, at });
    drawStroke();
  }
  pointers.set(event.pointerId, at);
}

function pinch(id, before, at) {
  const [, other] = [...pointers].find(([each]) => each !== id);
  const apart = (from) => Math.hypot(from.x - other.x, from.y - other.y) || 1;
  stroke = null;
  change(() => {
    view.zoom(apart(at) / apart(before), (at.x + other.x) / 2, (at.y + other.y) / 2);
    view.pan((at.x - before.x) / 2, (at.y - before.y) / 2);
  });
}

function released(event, mark) {
  const at = place(event);
  const points = stroke;
  forget(event);
  if (!points) return;
  const slipped = Math.hypot(at.x - points[0].at.x, at.y - points[0].at.y) > CLICK;
  if (event.pointerType === "touch" && slipped) return;
  const long = points.some((one) => Math.hypot(one.at.x - points[0].at.x, one.at.y - points[0].at.y) > CLICK);
  mark(long ? thinned(points) : [{ x: points[0].x, y: points[0].y }], event.pointerType === "touch");
}

function forget(event) {
  pointers.delete(event.pointerId);
  stroke = null;
  panning = false;
  element("stroke").replaceChildren();
}

function thinned(points) {
  const step = Math.max(1, (points.length - 1) / (MOST - 1));
  const kept = Array.from({ length: Math.min(MOST, points.length) }, (_, index) => points[Math.round(index * step)]);
  return [...new Map(kept.map(({ x, y }) => [`${x},${y}`, { x, y }])).values()];
}

function drawStroke() {
  element("stroke").replaceChildren(...thinned(stroke).map(({ x, y }) => {
    const dot = make("span", { className: "mark" });
    stage.place(dot, x + 0.5, y + 0.5);
    return dot;
  }));
}

// With Ctrl, which a pinch on a touchpad counts as, the wheel zooms; in a photo that is zoomed it moves, else the page.
function wheel(event) {
  if (!event.ctrlKey && !event.metaKey && !view.isZoomed()) return;
  event.preventDefault();
  const at = place(event);
  if (event.ctrlKey || event.metaKey) change(() => view.zoom(Math.exp(-event.deltaY / 200), at.x, at.y));
  else change(() => view.pan(-event.deltaX, -event.deltaY));
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function key(event, visit, mark) {
  if (event.target !== box || event.ctrlKey || event.metaKey || event.altKey) return;
  const finest = Math.max(1, Math.round(Math.max(view.photo.width, view.photo.height) / 1024)); // a pixel that was sent
  const step = event.shiftKey ? finest : Math.max(1, Math.round(Math.max(view.photo.width, view.photo.height) / 50));
  if (event.key in ARROWS) look(cross.x + ARROWS[event.key][0] * step, cross.y + ARROWS[event.key][1] * step, visit, true);
  else if (event.key === "+" || event.key === "=") change(() => zoomAtCross(true));
  else if (event.key === "-") change(() => zoomAtCross(false));
  else if (event.key === "0") change(view.fit);
  else if (event.key === "Enter") mark([{ ...cross }], false);
  else return;
  event.preventDefault();
}

function zoomAtCross(inwards) {
  const at = view.toStage(cross.x, cross.y);
  view.zoom(inwards ? 1.5 : 1 / 1.5, at.x, at.y);
}
