// Photos: read, reduced before they are sent, encoded once by the service.

import { call, post } from "./service.js";

const MOST_PIXELS = 1 << 20; // larger photos are reduced before they are sent: a ranking has 18 bytes per pixel
const BY_SERVICE = { tif: "image/tiff", tiff: "image/tiff", jp2: "image/jp2", ppm: "image/x-portable-pixmap", pgm: "image/x-portable-pixmap" };

// A photo as people chose it. Its bitmap is only kept while it is shown.
export function photoOf(file, title, sample = null) {
  return { file, title, sample, scene: null, sent: null, width: 0, height: 0, sentWidth: 0, sentHeight: 0 };
}

// Its bitmap; what the browser cannot read, such as TIFF, the service turns into a PNG file.
export async function read(photo, limits) {
  const bitmap = await decode(photo);
  Object.assign(photo, { width: bitmap.width, height: bitmap.height });
  if (!photo.sent) {
    const most = Math.min(MOST_PIXELS, limits.pixels);
    const scale = Math.min(1, Math.sqrt(most / (bitmap.width * bitmap.height)));
    const [sentWidth, sentHeight] = [bitmap.width, bitmap.height].map((side) => Math.floor(side * scale) || 1);
    const reduced = scale < 1 || photo.file.size > limits.bytes;
    const sent = reduced ? await drawn(bitmap, sentWidth, sentHeight) : photo.file;
    Object.assign(photo, { sent, sentWidth, sentHeight });
  }
  return bitmap;
}

async function decode(photo) {
  const ending = photo.title.toLowerCase().split(".").at(-1);
  const kind = photo.file.type || BY_SERVICE[ending];
  try {
    return await createImageBitmap(photo.file);
  } catch {
    if (!Object.values(BY_SERVICE).includes(kind)) {
      throw new Error(`The browser cannot read ${photo.title} as a picture: choose a JPEG, PNG, WebP, GIF, BMP or TIFF file.`);
    }
  }
  const made = await call("api/pictures", { method: "POST", headers: { "Content-Type": kind }, body: photo.file });
  photo.file = await made.blob();
  return createImageBitmap(photo.file);
}

async function drawn(bitmap, width, height, type = "image/png") {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  return canvas.convertToBlob({ type });
}

export async function thumbnail(bitmap) {
  const side = 160;
  const scale = side / Math.min(bitmap.width, bitmap.height);
  const most = (length) => Math.max(1, Math.min(4 * side, Math.round(length * scale)));
  return drawn(bitmap, most(bitmap.width), most(bitmap.height), "image/jpeg");
}

export function isReduced({ width, height, sentWidth, sentHeight }) {
  return width !== sentWidth || height !== sentHeight;
}

export async function encode(photo, model) {
  if (photo.scene) return;
  const headers = { "Content-Type": photo.sent.type || "image/png" };
  const sent = await call(`api/scenes?model=${encodeURIComponent(model)}`, { method: "POST", headers, body: photo.sent });
  photo.scene = (await sent.json()).scene;
}

// Ask about a photo, with others as examples. The service keeps scenes as long as it has room: those it has let go of are
// sent again.
export async function ask(photo, others, model, what, request, signal) {
  for (let again = true; ; again = false) {
    for (const each of [photo, ...others]) await encode(each, model);
    try {
      return await post(`api/scenes/${photo.scene}/${what}`, request(), signal);
    } catch (problem) {
      if (problem.status !== 404 || !again) throw problem;
      for (const each of [photo, ...others]) each.scene = null;
    }
  }
}
