// One slider from fewer to more new classes; below "Advanced" the rules as the service describes them, and the curve of
// what the slider changes.

import { capitalised, element, make, number, percent } from "./elements.js";

const STEPS = 100; // of the slider; the middle is the model's own value
const [WIDTH, HEIGHT] = [280, 84]; // of the curve

export function showChoices(rules) {
  element("rules").replaceChildren(...rules.map(({ name, title }) => {
    const radio = make("input", { type: "radio", name: "rule", value: name });
    return make("label", { title }, radio, make("span", { textContent: name.toUpperCase() }));
  }));
}

// The values that the slider goes through: from the one that corrects nothing over the model's own to the strongest. They
// are the same for every picture. Steps are finer near the model's own value.
export function scaleOf({ neutral }, own, strongest) {
  const middle = own === neutral ? 0 : STEPS / 2;
  const from = (position) => {
    if (position <= middle) return middle ? neutral + ((own - neutral) * position) / middle : neutral;
    return own + (strongest - own) * ((position - middle) / (STEPS - middle)) ** 2;
  };
  const to = (value) => {
    const beyond = (value - own) / (strongest - own);
    if (beyond >= 0 && strongest !== own) return Math.min(STEPS, middle + (STEPS - middle) * Math.sqrt(beyond));
    return middle ? Math.max(0, (middle * (value - neutral)) / (own - neutral)) : 0;
  };
  return { from, to };
}

export function showRule({ name, title, about, parameter }, value, scale) {
  element("rules").querySelector(`[value="${name}"]`).checked = true;
  element("rule-help").textContent = `${capitalised(title)}. ${about}`;
  for (const id of ["value-row", "value-help", "curve-box"]) element(id).hidden = !parameter;
  element("more").disabled = !parameter;
  if (!parameter) return;
  element("value-name").textContent = `${capitalised(parameter.name)} ${parameter.symbol}`;
  element("value-help").textContent = `${capitalised(parameter.about)}.`;
  Object.assign(element("value"), { min: 0, step: "any" });
  if (parameter.largest !== null) element("value").max = parameter.largest;
  else element("value").removeAttribute("max");
  showValue(value, scale);
}

export function showValue(value, scale) {
  element("more").value = scale.to(value);
  if (Number(element("value").value) !== value) element("value").value = number(value);
}

// The share of the picture that new classes cover at every step of the slider.
export function sharesOf({ turning, unseen }, { rises }, scale, none) {
  const values = Array.from({ length: STEPS + 1 }, (_, position) => Math.fround(scale.from(position)));
  const counts = new Uint32Array(STEPS + 2); // by the first step at which a pixel is new
  for (let i = 0; i < turning.length; i++) {
    if (unseen[i] === none) continue;
    let [low, high] = [0, STEPS + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rises ? turning[i] < values[middle] : turning[i] > values[middle]) high = middle;
      else low = middle + 1;
    }
    counts[low]++;
  }
  let sum = 0;
  return values.map((_, position) => (sum += counts[position]) / turning.length);
}

export function showCurve(shares, position) {
  const at = (step, share) => `${((step * WIDTH) / STEPS).toFixed(1)},${(HEIGHT - share * HEIGHT).toFixed(1)}`;
  element("curve-line").setAttribute("points", shares.map((share, step) => at(step, share)).join(" "));
  const x = (position * WIDTH) / STEPS;
  for (const [end, value] of Object.entries({ x1: x, x2: x, y1: 0, y2: HEIGHT })) element("curve-now").setAttribute(end, value);
  const now = shares[Math.round(position)];
  element("curve").setAttribute("aria-label",
    `New classes cover ${percent(shares[0])} of the picture at the left end of the slider, ${percent(now)} now, ${percent(shares[STEPS])} at the right end`);
}

export function why({ parameter }, value, turning, isNew) {
  const taken = `the ${isNew ? "new" : "trained"} class is taken`;
  if (!parameter) return `This rule has nothing to set: ${taken}.`;
  const never = parameter.rises ? false : turning <= 0; // a value of 0 is not allowed
  if (never || !Number.isFinite(turning)) return `Whatever ${parameter.name} is, ${taken}.`;
  return `Turns at ${parameter.name} ${number(turning)}: it is set to ${number(value)}, so ${taken}.`;
}
