// The picture, the tint and the names over it, the divider between before and after, and the pixel that is looked at.

import { element } from "./elements.js";
import { deepest } from "./places.js";

const stage = element("stage");
const photo = element("photo").getContext("2d");
const tint = element("tint").getContext("2d");

export const size = { width: 1, height: 1 };

export function showPhoto(bitmap) {
  Object.assign(size, { width: bitmap.width, height: bitmap.height });
  for (const { canvas } of [photo, tint]) Object.assign(canvas, size); // this also clears them
  stage.style.setProperty("--ratio", size.width / size.height);
  photo.drawImage(bitmap, 0, 0);
  element("tags").replaceChildren();
  element("cross").hidden = true;
}

export function showLabels(labels, colours) {
  // A pixel of an ImageData is red, green, blue, alpha in memory; as one number on a little-endian machine, reversed.
  const words = Uint32Array.from(colours, ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red);
  const image = tint.createImageData(size.width, size.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = words[labels[i]];
  tint.putImageData(image, 0, 0);
}

// Names on their regions, for the eye only: the list of classes says the same to everyone.
export function showNames(labels, names, colours, background) {
  const tags = deepest(labels, size.width, size.height).filter(({ label }) => names[label] !== background);
  element("tags").replaceChildren(...tags.map(({ label, x, y }) => {
    const tag = document.createElement("span");
    tag.textContent = names[label];
    Object.assign(tag.style, { left: `${100 * x}%`, top: `${100 * y}%`, borderColor: `rgb(${colours[label].join(" ")})` });
    return tag;
  }));
}

export function showShare() {
  const hidden = Number(element("compare").value);
  element("compare").setAttribute("aria-valuetext", hidden ? `original on the left ${hidden} %` : "original hidden");
  for (const layer of [tint.canvas, element("tags")]) layer.style.clipPath = `inset(0 0 0 ${hidden}%)`;
  tint.canvas.style.opacity = element("opacity").value / 100;
  element("tags").hidden = element("opacity").value === "0";
  element("divider").hidden = hidden === 0;
  element("divider").style.left = `${hidden}%`;
}

export function showBusy(busy) {
  stage.setAttribute("aria-busy", busy);
}

// Call `visit(x, y, byKeyboard)` with the pixel under the pointer or the arrow keys' cross.
export function onVisit(visit) {
  const cross = { x: 0, y: 0 };

  function move(x, y, byKeyboard) {
    cross.x = Math.min(Math.max(x, 0), size.width - 1);
    cross.y = Math.min(Math.max(y, 0), size.height - 1);
    element("cross").style.left = `${(100 * (cross.x + 0.5)) / size.width}%`;
    element("cross").style.top = `${(100 * (cross.y + 0.5)) / size.height}%`;
    element("cross").hidden = false;
    visit(cross.x, cross.y, byKeyboard);
  }

  function point(event) {
    const box = stage.getBoundingClientRect();
    const across = (event.clientX - box.left) / box.width;
    const down = (event.clientY - box.top) / box.height;
    move(Math.floor(across * size.width), Math.floor(down * size.height), false);
  }

  stage.addEventListener("pointermove", point);
  stage.addEventListener("pointerdown", point);
  stage.addEventListener("focus", () => {
    if (element("cross").hidden && stage.matches(":focus-visible")) move(size.width >> 1, size.height >> 1, true);
  });
  stage.addEventListener("keydown", (event) => {
    const step = event.shiftKey ? 1 : Math.max(1, Math.round(Math.max(size.width, size.height) / 50));
    const [right, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [];
    if (right === undefined) return;
    event.preventDefault();
    move(cross.x + right * step, cross.y + down * step, true);
  });
}
