// Why a pixel took its class.

import { announce, element, make, number, swatch } from "./elements.js";
import { nearestTwo, NONE } from "./ranking.js";
import { why } from "./rules.js";

const REST = 120; // ms the pointer stays before the service is asked for more about a pixel
let timer = null;
let visited = null; // {x, y} on the photo

export function visitedPixel() {
  return visited;
}

export function forgetPixel() {
  visited = null;
  element("pixel-classes").replaceChildren();
  element("pixel-why").textContent = "";
  element("pixel-label").textContent = "Point at the picture, tap it, or focus it and use the arrow keys.";
}

// `shown` is what the stage shows: {ranking, labels, names, colours, rule, value}; `ask` gets the explanation of the pixel
// (i of the ranking) from the service.
export function explain(shown, x, y, i, aloud, ask) {
  visited = { x, y };
  clearTimeout(timer);
  const near = byExample(shown, i) ? nearestTwo(shown.ranking, i).slice(0, 1) : nearestTwo(shown.ranking, i);
  tell(shown, near, i, aloud && near.every((one) => one.label !== NONE));
  if (near.some((one) => one.label === NONE)) {
    timer = setTimeout(() => nameSecond(shown, near, x, y, i, aloud, ask).catch(() => {}), REST);
  }
}

// The service sends a pixel that an example decides as one whose nearest trained class is the new one.
function byExample({ ranking }, i) {
  return ranking.unseen[i] === NONE && ranking.isUnseen[ranking.seen[i]];
}

// Only the nearest trained class of a pixel is in the ranking; where the second nearest is trained too, ask for it.
async function nameSecond(shown, near, x, y, i, aloud, ask) {
  const { first, second } = await ask();
  const nearest = shown.ranking.names[near[0].label];
  const next = [first, second].find((one) => one && one.name !== nearest);
  if (visited?.x !== x || visited?.y !== y || !next) return;
  near[1].label = shown.ranking.names.indexOf(next.name);
  tell(shown, near, i, aloud);
}

function tell(shown, near, i, aloud) {
  const { ranking, labels, names, colours, rule, value } = shown;
  const { x, y } = visited;
  const label = labels[i];
  const name = names[label];
  element("pixel-label").replaceChildren(`x ${x}, y ${y}: `, swatch(colours[label]), " ", make("b", { textContent: name }));
  element("pixel-classes").replaceChildren(...near.map((one) => item(shown, one)));
  const reason = label >= ranking.names.length ? "It is less likely right than what is to be left out."
    : byExample(shown, i) ? "It is more like the example than like anything that was trained."
    : why(rule, value, ranking.turning[i], ranking.isUnseen[label]);
  element("pixel-why").textContent = reason;
  if (aloud) {
    const listed = near.filter((one) => one.label !== NONE).map((one) => names[one.label]);
    announce(`x ${x}, y ${y}: ${name}. Nearest ${listed.join(", then ")}. ${reason}`);
  }
}

function item({ ranking, names, colours }, { label, distance }) {
  const at = ` at distance ${number(distance)}`;
  if (label === NONE) return make("li", {}, "…", at);
  const isNew = ranking.isUnseen[label];
  const badge = make("span", { className: isNew ? "badge new" : "badge", textContent: isNew ? "new" : "trained" });
  return make("li", {}, swatch(colours[label]), ` ${names[label]} `, badge, at);
}
