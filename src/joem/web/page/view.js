// Which part of the photo the stage shows: zoom, pan, and where a point of the screen is on the photo.

const CLOSEST = 8; // pixels of the page for one of the photo
const STEP = 1.5; // of the zoom buttons

export const photo = { width: 1, height: 1 };
const view = { scale: 1, left: 0, top: 0 }; // pixels of the page per pixel of the photo; what is at the corner
let box = { width: 1, height: 1 };

export function get() {
  return { ...view };
}

export function isZoomed() {
  return view.scale > fitting() * 1.001;
}

function fitting() {
  return Math.min(box.width / photo.width, box.height / photo.height);
}

export function show(size) {
  Object.assign(photo, size);
  fit();
}

export function fit() {
  view.scale = fitting();
  keepInside();
}

// The stage has another size: what was at its middle stays there.
export function resize(width, height) {
  const wasZoomed = isZoomed();
  const middle = toPhoto(box.width / 2, box.height / 2);
  box = { width, height };
  if (!wasZoomed) return fit();
  Object.assign(view, { left: middle.x - width / 2 / view.scale, top: middle.y - height / 2 / view.scale });
  keepInside();
}

// Zoom so that what is at this point of the stage stays there.
export function zoom(factor, x = box.width / 2, y = box.height / 2) {
  const before = toPhoto(x, y);
  const closest = Math.max(CLOSEST, 4 * fitting());
  view.scale = Math.min(closest, Math.max(fitting(), view.scale * factor));
  Object.assign(view, { left: before.x - x / view.scale, top: before.y - y / view.scale });
  keepInside();
}

export function step(inwards) {
  zoom(inwards ? STEP : 1 / STEP);
}

export function pan(across, down) {
  view.left -= across / view.scale;
  view.top -= down / view.scale;
  keepInside();
}

// Move so far that a place on the photo can be seen.
export function reveal(x, y) {
  const at = toStage(x, y);
  const beyond = (value, length) => Math.min(0, value - 20) || Math.max(0, value - length + 20);
  pan(-beyond(at.x, box.width), -beyond(at.y, box.height));
}

export function toPhoto(x, y) {
  return { x: view.left + x / view.scale, y: view.top + y / view.scale };
}

export function toStage(x, y) {
  return { x: (x - view.left) * view.scale, y: (y - view.top) * view.scale };
}

function keepInside() {
  view.left = inside(view.left, box.width / view.scale, photo.width);
  view.top = inside(view.top, box.height / view.scale, photo.height);
}

function inside(start, shown, length) {
  return shown >= length ? (length - shown) / 2 : Math.min(length - shown, Math.max(0, start));
}
