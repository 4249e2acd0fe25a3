// Labels as colours with smooth white outlines, at any zoom.
//
// The mask of every class is taken as a B-spline of degree four over its pixels, which turns stairs into curves; a pixel of
// the screen takes the class with the largest mask there, and is white where the second largest is nearly as large.

const REACH = 2; // pixels on every side that the spline looks at
const TAPS = 2 * REACH + 1;
const SLOPE = 1.2; // by how much the two largest masks draw apart in a pixel of labels beside a straight outline
const LINE = 0.7; // half the width of outlines, in pixels of the page

// Which pixels have another label within reach.
export function edgesOf(labels, width, height) {
  const edges = new Uint8Array(labels.length);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const i = y * width + x;
      const right = x + 1 < width;
      const below = y + 1 < height;
      const same = (right ? labels[i + 1] === labels[i] : true) && (below ? labels[i + width] === labels[i] : true) &&
        (right && below ? labels[i + width + 1] === labels[i] && labels[i + 1] === labels[i + width] : true);
      if (same) continue;
      const [first, last] = [Math.max(0, x + 1 - REACH), Math.min(width, x + 1 + REACH)];
      for (let row = Math.max(0, y + 1 - REACH); row < Math.min(height, y + 1 + REACH); row++) {
        edges.fill(1, row * width + first, row * width + last);
      }
    }
  }
  return edges;
}

// For every pixel of a screen's side: the label's place and the weights of it and its neighbours; -1 outside.
function axis(length, start, step, count) {
  const places = new Int32Array(length);
  const weights = new Float32Array(TAPS * length);
  for (let at = 0; at < length; at++) {
    const place = start + (at + 0.5) * step - 0.5;
    if (place < -0.5 || place > count - 0.5) {
      places[at] = -1;
      continue;
    }
    const nearest = Math.min(count - 1, Math.max(0, Math.round(place)));
    const off = place - nearest;
    places[at] = nearest;
    weights.set(spline(off), TAPS * at);
  }
  return { places, weights };
}

// How much the pixels from two before to two after count at so much beside the middle one, from -1/2 to 1/2.
function spline(t) {
  const [square, cube, fourth] = [t * t, t ** 3, t ** 4];
  const beside = 19 / 96 + square / 4 - fourth / 6;
  const tilt = (11 / 24) * t - cube / 6;
  return [(0.5 - t) ** 4 / 24, beside - tilt, 115 / 192 - (5 / 8) * square + fourth / 4, beside + tilt, (0.5 + t) ** 4 / 24];
}

// Fill an ImageData. `view` says where its left top corner is among the labels and how many labels a pixel has;
// `fills` are RGBA by label, `line` the alpha of outlines.
export function paint(image, { labels, edges, width, height }, view, fills, line, ratio) {
  const { width: across, height: down } = image;
  const out = new Uint32Array(image.data.buffer);
  const fill = Uint32Array.from(fills, ([red, green, blue, alpha]) => ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0);
  const columns = axis(across, view.left, view.step, width);
  const rows = axis(down, view.top, view.step, height);
  const half = LINE * ratio;
  const mix = mixer(fills, line);
  for (let y = 0, o = 0; y < down; y++) {
    const row = rows.places[y];
    for (let x = 0; x < across; x++, o++) {
      const column = columns.places[x];
      if (row < 0 || column < 0) continue;
      const i = row * width + column;
      if (!edges[i]) {
        out[o] = fill[labels[i]] ?? 0;
        continue;
      }
      const { label, margin } = largest(labels, width, height, row, column, rows.weights, TAPS * y, columns.weights, TAPS * x);
      const cover = half + 0.5 - margin / (SLOPE * view.step);
      out[o] = cover <= 0 ? (fill[label] ?? 0) : mix(label, Math.min(1, cover));
    }
  }
}

const seen = new Int32Array(TAPS * TAPS);
const sums = new Float32Array(TAPS * TAPS);
const found = { label: 0, margin: 0 };

function largest(labels, width, height, row, column, down, y, across, x) {
  let count = 0;
  for (let dy = -REACH; dy <= REACH; dy++) {
    const r = Math.min(height - 1, Math.max(0, row + dy));
    for (let dx = -REACH; dx <= REACH; dx++) {
      const label = labels[r * width + Math.min(width - 1, Math.max(0, column + dx))];
      let at = 0;
      while (at < count && seen[at] !== label) at++;
      if (at === count) {
        seen[at] = label;
        sums[at] = 0;
        count++;
      }
      sums[at] += down[y + dy + REACH] * across[x + dx + REACH];
    }
  }
  let first = 0;
  for (let at = 1; at < count; at++) if (sums[at] > sums[first]) first = at;
  let second = 0;
  for (let at = 0; at < count; at++) if (at !== first && sums[at] > second) second = sums[at];
  found.label = seen[first];
  found.margin = sums[first] - second;
  return found;
}

function mixer(fills, line) {
  return (label, cover) => {
    const [red, green, blue, alpha] = fills[label] ?? [255, 255, 255, 0];
    const [white, rest] = [cover * line, (1 - cover) * (alpha / 255)];
    const sum = white + rest || 1;
    const channel = (value) => Math.round((white * 255 + rest * value) / sum);
    return ((Math.round(255 * (white + rest)) << 24) | (channel(blue) << 16) | (channel(green) << 8) | channel(red)) >>> 0;
  };
}
