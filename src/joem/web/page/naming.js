// The small form that asks what was clicked on.

import { attempt, element, make } from "./elements.js";

const form = element("naming");
const field = element("naming-name");
const MOST = 6; // names offered
let answer = null;

// Ask for the name of what is at a place of the stage. `offers` are names to pick, `here` the class that is there now,
// if it can be told that it is not that. Calls `give(name, positive)`.
export function askName({ x, y }, offers, here, byTouch, give) {
  answer = give;
  field.value = "";
  element("problem-naming").hidden = true;
  element("naming-offers").replaceChildren(
    ...offers.slice(0, MOST).map((name) => offer(name, name, true)),
    ...(here ? [offer(`not ${here}`, here, false)] : []),
  );
  form.hidden = false;
  const frame = form.parentElement;
  const [width, height] = [form.offsetWidth, form.offsetHeight];
  const left = Math.min(Math.max(0, x - width / 2), Math.max(0, frame.clientWidth - width));
  const above = y + height + 24 > frame.clientHeight && y - height - 18 >= 0;
  Object.assign(form.style, { left: `${left}px`, top: `${above ? y - height - 18 : y + 18}px` });
  if (byTouch) form.scrollIntoView({ block: "nearest" });
  else field.focus();
}

function offer(text, name, positive) {
  const button = make("button", { type: "button", className: positive ? "" : "not", textContent: text });
  button.addEventListener("click", () => submit(name, positive));
  return button;
}

function submit(name, positive) {
  return attempt("naming", async () => {
    if (!name) throw new Error("Type what is there, or pick one of the names.");
    await answer(name, positive);
    close();
  });
}

export function close() {
  if (form.hidden) return;
  if (form.contains(document.activeElement)) element("stage").focus({ preventScroll: true });
  form.hidden = true;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  submit(field.value.replaceAll(",", " ").trim(), true);
});
form.addEventListener("keydown", ({ key }) => key === "Escape" && close());
element("naming-close").addEventListener("click", close);
