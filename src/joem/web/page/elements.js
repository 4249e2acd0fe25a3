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

// For people who listen to the page.
export function announce(text) {
  element("status").textContent = text;
}
