// Where to write the name of each class on the picture.

const SIDE = 128; // the labels are looked at in a grid of about this many steps

// For each label that covers an area worth naming, the place that lies deepest inside it, as shares of the picture.
export function deepest(labels, width, height) {
  const step = Math.ceil(Math.max(width, height) / SIDE);
  const across = Math.floor(width / step);
  const down = Math.floor(height / step);
  const at = (x, y) => labels[y * step * width + x * step];
  const depths = new Uint16Array(across * down); // steps to another label or to the edge of the picture
  const inside = (x, y, label) => (x >= 0 && y >= 0 && x < across && y < down && at(x, y) === label ? depths[y * across + x] : 0);
  for (let y = 0; y < down; y++) {
    for (let x = 0; x < across; x++) {
      const label = at(x, y);
      depths[y * across + x] = 1 + Math.min(inside(x - 1, y, label), inside(x, y - 1, label));
    }
  }
  const found = new Map();
  for (let y = down - 1; y >= 0; y--) {
    for (let x = across - 1; x >= 0; x--) {
      const label = at(x, y);
      const i = y * across + x;
      depths[i] = Math.min(depths[i], 1 + Math.min(inside(x + 1, y, label), inside(x, y + 1, label)));
      if (depths[i] > (found.get(label)?.depth ?? SIDE / 32)) {
        found.set(label, { label, depth: depths[i], x: (x * step + 0.5) / width, y: (y * step + 0.5) / height });
      }
    }
  }
  return [...found.values()];
}
