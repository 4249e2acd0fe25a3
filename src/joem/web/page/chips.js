// The list of classes: newest first, each with its colour and its share of the picture.

import { element, make, percent, swatch } from "./elements.js";

const MANY = 14; // from so many on, those that are not in the picture are folded away

// `classes` are {word, name, colour, kind, isNew, share}, in the order in which they came; `remove(word)` takes one away.
export function showChips(classes, remove) {
  const newest = [...classes].reverse();
  const fold = newest.length >= MANY;
  const isAbsent = ({ share }) => fold && share === 0;
  fill(element("chips"), newest.filter((one) => !isAbsent(one)), remove);
  const absent = newest.filter(isAbsent);
  element("absent").hidden = !absent.length;
  element("absent-count").textContent = `${absent.length} not in this picture`;
  fill(element("absent-chips"), absent, remove);
  for (const id of ["clear", "found"]) element(id).hidden = !classes.length;
  element("found").hidden ||= !classes.some(({ share }) => share === 0);
}

function fill(list, classes, remove) {
  const old = new Map([...list.children].map((item) => [item.dataset.word, item]));
  list.replaceChildren(...classes.map((one) => {
    const item = old.get(one.word) ?? chip(one.word, remove);
    show(item, one);
    return item;
  }));
}

function chip(word, remove) {
  const button = make("button", { type: "button", textContent: "×" });
  button.addEventListener("click", () => remove(word));
  const parts = ["swatch", "name", "badge", "area"].map((className) => make("span", { className }));
  const item = make("li", {}, ...parts, button);
  item.dataset.word = word;
  return item;
}

function show(item, { name, colour, kind, isNew, share }) {
  item.dataset.name = name;
  item.classList.toggle("absent", share === 0);
  item.querySelector(".swatch").replaceWith(colour ? swatch(colour) : make("span", { className: "swatch none" }));
  item.querySelector(".name").textContent = name;
  const badge = item.querySelector(".badge");
  badge.textContent = kind;
  badge.classList.toggle("new", isNew);
  item.querySelector(".area").textContent = share === undefined ? "" : share ? percent(share) : "not found";
  item.querySelector("button").ariaLabel = `Remove ${name}`;
}

export function neighbourOf(word) {
  const item = [...document.querySelectorAll("#chips li, #absent-chips li")].find(({ dataset }) => dataset.word === word);
  return (item?.nextElementSibling ?? item?.previousElementSibling)?.querySelector("button") ?? null;
}
