// The rules as the service describes them: radio buttons, help, the one slider, and why a pixel took its class.

import { element, make, number } from "./elements.js";

const STEPS = 100; // of the slider, where the parameter has bounds

export function showChoices(rules) {
  element("rules").replaceChildren(...rules.map(({ name, title }) => {
    const radio = make("input", { type: "radio", name: "rule", value: name });
    return make("label", { title }, radio, make("span", { textContent: name.toUpperCase() }));
  }));
}

// The rule with the value of its parameter; `turning`, where there is a ranking by it, bounds what has no bounds.
export function showRule({ name, title, about, parameter }, value, turning) {
  element("rules").querySelector(`[value="${name}"]`).checked = true;
  element("rule-help").textContent = `${capitalised(title)}. ${about}`;
  for (const id of ["value-row", "value-help"]) element(id).hidden = !parameter;
  if (!parameter) return;
  element("value-name").textContent = `${capitalised(parameter.name)} ${parameter.symbol}`;
  element("value-help").textContent = `${capitalised(parameter.about)}.`;
  const { least, most, step } = range(parameter, value, turning);
  Object.assign(element("value"), { min: least, max: most, step, value }); // in this order: a value is kept in bounds
  showValue(value);
}

export function showValue(value) {
  element("value-shown").textContent = number(value);
}

// From the value that corrects nothing to the strongest that makes sense: where no value is the largest, the one at which
// every pixel has become new. A parameter that falls ends just above 0, which is not allowed.
function range({ neutral, largest, rises }, value, turning) {
  if (!rises) return { least: neutral / STEPS, most: neutral, step: neutral / STEPS };
  if (largest !== null) return { least: neutral, most: largest, step: (largest - neutral) / STEPS };
  let most = value;
  for (const point of turning ?? []) if (point > most && point < Infinity) most = point;
  return { least: neutral, most: most > neutral ? most : neutral + 1, step: "any" };
}

export function why({ parameter }, value, turning, isNew) {
  const taken = `the ${isNew ? "new" : "trained"} class is taken`;
  if (!parameter) return `This rule has nothing to set: ${taken}.`;
  if (!Number.isFinite(turning)) return `Whatever ${parameter.name} is, ${taken}.`;
  return `Turns at ${parameter.name} ${number(turning)}: the slider is at ${number(value)}, so ${taken}.`;
}

function capitalised(text) {
  return text[0].toUpperCase() + text.slice(1);
}
