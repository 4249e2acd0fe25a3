// Small tools for what the page consists of.

export function element(id) {
  return document.getElementById(id);
}

export function make(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function percent(share) {
  return share < 0.01 ? "<1 %" : `${Math.round(100 * share)} %`;
}

export function number(value) {
  return String(Number(value.toPrecision(3)));
}

export function capitalised(text) {
  return text[0].toUpperCase() + text.slice(1);
}

export function rgb([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`;
}

export function swatch(colour) {
  const square = make("span", { className: "swatch" });
  square.style.background = rgb(colour);
  return square;
}

// For people who listen to the page.
export function announce(text) {
  element("status").textContent = text;
}

// Run something that a person started; if it fails, tell it where they are: in the box `problem-<place>`.
export async function attempt(place, action, show = tell) {
  for (const box of document.querySelectorAll("[role=alert]")) box.hidden = true;
  try {
    await action();
  } catch (problem) {
    if (problem.name !== "AbortError") show(element(`problem-${place}`), problem);
  }
}

export function tell(box, { message }) {
  box.replaceChildren(make("p", { textContent: message }));
  box.hidden = false;
}
