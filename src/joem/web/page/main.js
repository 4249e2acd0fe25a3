import { announce, element, make, number, percent } from "./elements.js";
import { palettePng } from "./png.js";
import { decide, nearestTwo, NONE, unpack } from "./ranking.js";
import * as rules from "./rules.js";
import { call, post } from "./service.js";
import * as stage from "./stage.js";

const MOST_PIXELS = 1 << 20; // larger photos are reduced before they are sent: a ranking has 18 bytes per pixel
const REST = 120; // ms the pointer stays before the service is asked for more about a pixel

const state = {
  model: null,
  names: [],
  borrowed: null, // the names that came with a sample
  picture: null, // {file, title, scene}
  ranking: null,
  labels: null,
  rule: null, // as the service describes it
  values: {}, // of the parameters of rules
};
let visited = null; // the pixel under the pointer
let latest = new AbortController(); // of the newest ranking asked for
let rankingUnderWay = false;

// ---- asking the service

async function begin() {
  state.model = await (await call("api/model")).json();
  state.names = [...state.model.names];
  state.values = { ...state.model.decision.values };
  rules.showChoices(state.model.rules);
  setRule(state.model.decision.rule);
  const samples = await (await call("api/samples")).json();
  const files = await Promise.all(samples.map(async (one) => (await call(one.url.slice(1))).blob()));
  samples.forEach((one, index) => addSample(one, files[index]));
  if (samples.length) await attempt(() => openSample(samples[0], files[0]));
  else stage.showBusy(false);
}

async function openSample({ title, names }, file) {
  state.borrowed = names;
  await open(file, title, names ?? state.names);
}

// A photo of one's own starts with the model's classes, unless someone has chosen others.
function openOwn(file, title) {
  return open(file, title, state.names === state.borrowed ? [...state.model.names] : state.names);
}

async function open(file, title, names) {
  announce(`Reading ${title}.`);
  stage.showBusy(true);
  const bitmap = await decode(file);
  const reduced = bitmap.width * bitmap.height > limit();
  const picture = { file: reduced ? await reduce(bitmap) : file, title };
  Object.assign(state, { picture, ranking: null, labels: null });
  stage.showPhoto(reduced ? await decode(picture.file) : bitmap);
  stage.showShare();
  for (const button of element("samples").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", button.title === title);
  }
  await rank(names);
}

async function decode(file) {
  try {
    return await createImageBitmap(file);
  } catch {
    throw new Error("The browser cannot read this file as a picture: choose a JPEG, PNG, WebP, GIF or BMP file.");
  }
}

function limit() {
  return Math.min(MOST_PIXELS, state.model.limits.pixels);
}

async function reduce(bitmap) {
  const scale = Math.sqrt(limit() / (bitmap.width * bitmap.height));
  const canvas = new OffscreenCanvas(Math.floor(bitmap.width * scale) || 1, Math.floor(bitmap.height * scale) || 1);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type: "image/png" });
}

async function encode(picture) {
  const sent = await call("api/scenes", { method: "POST", headers: { "Content-Type": picture.file.type }, body: picture.file });
  picture.scene = (await sent.json()).scene;
}

// The service keeps a scene as long as it has room: send the picture again when it has let go of it.
async function ask(what, request, signal) {
  const { picture } = state;
  if (!picture.scene) await encode(picture);
  try {
    return await post(`api/scenes/${picture.scene}/${what}`, request, signal);
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    await encode(picture);
    return post(`api/scenes/${picture.scene}/${what}`, request, signal);
  }
}

async function rank(names) {
  latest.abort();
  const current = (latest = new AbortController());
  rankingUnderWay = true;
  stage.showBusy(true);
  try {
    const ranking = await askRanking(names, current.signal);
    if (current.signal.aborted) return;
    const sameNames = state.ranking && names === state.names;
    // Two names that mean one class are one from now on.
    Object.assign(state, { names: ranking.asked.length === names.length ? names : ranking.asked, ranking });
    showNotes(ranking.notes);
    showRule();
    showResult();
    if (sameNames) showShares();
    else orderChips();
    announce(summary());
  } finally {
    if (current === latest) endRanking();
  }
}

async function askRanking(names, signal) {
  for (;;) {
    const { name } = state.rule;
    const answer = await ask("ranking", { names, background: false, rule: name }, signal);
    const ranking = unpack(await answer.arrayBuffer());
    if (name === state.rule.name || signal.aborted) return ranking; // or another rule was chosen meanwhile
  }
}

// What the service understood otherwise than it was typed.
function showNotes(notes) {
  element("notes").textContent = notes.join(" ");
  element("notes").hidden = !notes.length;
}

function endRanking() {
  rankingUnderWay = false;
  stage.showBusy(false);
  if (state.ranking && !isRanked()) setRule(state.ranking.rule); // it failed: back to the rule that is shown
}

// Run something that a person started, and tell them if it fails.
async function attempt(action) {
  element("problem").hidden = true;
  try {
    await action();
  } catch (problem) {
    if (problem.name === "AbortError") return;
    stage.showBusy(false);
    showProblem(problem);
  }
}

// ---- showing what came back

function showResult() {
  const { ranking, rule, model } = state;
  state.labels = decide(ranking, rule.parameter, value());
  stage.showLabels(state.labels, ranking.colours);
  stage.showNames(state.labels, ranking.names, ranking.colours, model.background);
  if (visited) showPixel(visited.x, visited.y, false);
  for (const id of ["save-mask", "save-overlay"]) element(id).disabled = false;
}

function areas() {
  const counts = new Uint32Array(state.ranking.names.length);
  for (const label of state.labels) counts[label]++;
  return Array.from(counts, (count) => count / state.labels.length);
}

// Labels from the largest share of the picture to the smallest.
function byShare(shares) {
  return shares.map((_, label) => label).sort((a, b) => shares[b] - shares[a]);
}

function summary() {
  const { names } = state.ranking;
  const shares = areas();
  const large = byShare(shares).filter((label) => shares[label] >= 0.005).slice(0, 6);
  return `${state.picture.title}: ${large.map((label) => `${names[label]} ${percent(shares[label])}`).join(", ")}.`;
}

// New chips for new names, those found first; they keep their places while a slider moves.
function orderChips() {
  const { names, isUnseen, colours } = state.ranking;
  const chips = byShare(areas()).map((label) => chip(label, names[label], isUnseen[label], colours[label]));
  element("chips").replaceChildren(...chips);
  showShares();
}

function showShares() {
  const shares = areas();
  for (const item of element("chips").children) {
    const share = shares[item.dataset.label];
    item.classList.toggle("absent", share === 0);
    item.querySelector(".area").textContent = share ? percent(share) : "";
  }
  const unseen = shares.filter((_, label) => state.ranking.isUnseen[label]).reduce((sum, share) => sum + share, 0);
  element("share").textContent = `New classes cover ${percent(unseen)} of the picture.`;
}

function chip(label, name, unseen, colour) {
  const remove = make("button", { type: "button", textContent: "×", ariaLabel: `Remove ${name}` });
  remove.addEventListener("click", () => attempt(() => removeClass(label)));
  const item = make("li", {}, swatch(colour), make("span", { className: "name", textContent: name }), badge(unseen), make("span", { className: "area" }), remove);
  Object.assign(item.dataset, { label, name });
  return item;
}

function swatch([red, green, blue]) {
  const square = make("span", { className: "swatch" });
  square.style.background = `rgb(${red} ${green} ${blue})`;
  return square;
}

function badge(unseen) {
  return make("span", { className: unseen ? "badge new" : "badge", textContent: unseen ? "new" : "trained" });
}

// The value of the chosen rule's parameter, if it has one.
function value() {
  return state.values[state.rule.parameter?.name];
}

// Whether the ranking is by the chosen rule; it is not while the service is asked for it.
function isRanked() {
  return state.ranking?.rule === state.rule.name;
}

function showRule() {
  rules.showRule(state.rule, value(), isRanked() ? state.ranking.turning : null);
}

function showPixel(x, y, aloud) {
  visited = { x, y };
  const { ranking, labels } = state;
  if (!labels) return;
  const i = y * stage.size.width + x;
  const near = nearestTwo(ranking, i);
  tellPixel(near, i, aloud && near.every((one) => one.label !== NONE));
  clearTimeout(showPixel.timer);
  if (near.some((one) => one.label === NONE)) {
    showPixel.timer = setTimeout(() => nameSecond(near, x, y, i, aloud).catch(() => {}), REST);
  }
}

// Only the nearest trained class of a pixel is in the ranking; where the second nearest is trained too, ask for it.
async function nameSecond(near, x, y, i, aloud) {
  const { ranking, names } = state;
  const { second } = await (await ask("explain", { names, background: false, x, y })).json();
  if (state.ranking !== ranking || visited?.x !== x || visited?.y !== y) return;
  near[1].label = ranking.names.indexOf(second.name);
  tellPixel(near, i, aloud);
}

function tellPixel(near, i, aloud) {
  const { ranking, labels } = state;
  const { x, y } = visited;
  const label = labels[i];
  element("pixel-label").replaceChildren(
    `x ${x}, y ${y}: `, swatch(ranking.colours[label]), " ", make("b", { textContent: ranking.names[label] }),
  );
  element("pixel-classes").replaceChildren(...near.map((one) => nearItem(one)));
  const reason = isRanked() ? rules.why(state.rule, value(), ranking.turning[i], ranking.isUnseen[label]) : "";
  element("pixel-why").textContent = reason;
  if (aloud) announce(`x ${x}, y ${y}: ${ranking.names[label]}. Nearest ${near.map((one) => ranking.names[one.label]).join(", then ")}. ${reason}`);
}

function nearItem({ label, distance }) {
  const { names, isUnseen, colours } = state.ranking;
  const at = ` at distance ${number(distance)}`;
  if (label === NONE) return make("li", {}, "…", at);
  return make("li", {}, swatch(colours[label]), ` ${names[label]} `, badge(isUnseen[label]), at);
}

function showProblem({ message, word, near }) {
  const box = element("problem");
  const offers = (near ?? []).map((other) => {
    const button = make("button", { type: "button", textContent: other });
    button.addEventListener("click", () => {
      element("words").value = element("words").value.replaceAll(word, other);
      attempt(addNames);
    });
    return button;
  });
  const text = word ? `The word vectors do not know “${word}”.${offers.length ? " Did you mean:" : ""}` : message;
  box.replaceChildren(make("p", { textContent: text }), ...offers);
  box.hidden = false;
}

// ---- what a person can do

function addSample(sample, file) {
  const { title } = sample;
  const image = make("img", { src: URL.createObjectURL(file), alt: title });
  const button = make("button", { type: "button", title, ariaPressed: "false" }, image);
  button.addEventListener("click", () => attempt(() => openSample(sample, file)));
  element("samples").append(make("li", {}, button));
}

async function addNames() {
  const typed = element("words").value.split(",").map((name) => name.trim()).filter(Boolean);
  const added = [...new Set(typed)].filter((name) => !state.names.includes(name));
  if (!added.length) return;
  await rank([...state.names, ...added]);
  element("words").value = "";
  chipOf(state.ranking.names.at(-1)).scrollIntoView({ block: "nearest" });
}

async function removeClass(label) {
  if (state.names.length === 1) throw new Error("One class must stay: add another one first.");
  const { nextElementSibling, previousElementSibling } = chipOf(state.ranking.names[label]);
  const neighbour = (nextElementSibling ?? previousElementSibling).dataset.name;
  await rank(state.names.filter((_, other) => other !== label));
  chipOf(neighbour)?.querySelector("button").focus();
}

function chipOf(name) {
  return [...element("chips").children].find((item) => item.dataset.name === name);
}

async function onlyFound() {
  const shares = areas();
  await rank(state.names.filter((_, label) => shares[label] > 0));
}

async function saveMask() {
  const { labels, ranking } = state;
  save(await palettePng(labels, ranking.width, ranking.height, ranking.colours), "mask.png");
}

async function saveOverlay() {
  const { names, rule, values } = state;
  save(await (await ask("overlay", { names, background: false, rule: rule.name, ...values })).blob(), "overlay.png");
}

function save(file, name) {
  const link = make("a", { href: URL.createObjectURL(file), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  announce(`Saved ${name}.`);
}

function connect() {
  element("file").addEventListener("change", ({ target }) => take(target.files, target.files[0]?.name));
  element("add").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(addNames);
  });
  element("reset").addEventListener("click", () => attempt(() => rank([...state.model.names])));
  element("found").addEventListener("click", () => attempt(onlyFound));
  element("save-mask").addEventListener("click", () => attempt(saveMask));
  element("save-overlay").addEventListener("click", () => attempt(saveOverlay));
  for (const id of ["compare", "opacity"]) element(id).addEventListener("input", stage.showShare);
  element("rules").addEventListener("change", ({ target }) => attempt(() => chooseRule(target.value)));
  element("value").addEventListener("input", ({ target }) => setValue(Number(target.value)));
  element("value").addEventListener("change", () => state.labels && announce(summary()));
  stage.onVisit(showPixel);
  addEventListener("paste", ({ clipboardData }) => take(clipboardData.files, "pasted picture"));
  addEventListener("dragover", (event) => {
    event.preventDefault();
    element("drop-hint").hidden = false;
  });
  addEventListener("dragleave", ({ relatedTarget }) => (element("drop-hint").hidden = relatedTarget === null));
  addEventListener("drop", (event) => {
    event.preventDefault();
    element("drop-hint").hidden = true;
    take(event.dataTransfer.files, event.dataTransfer.files[0]?.name);
  });
}

function setRule(name) {
  state.rule = state.model.rules.find((rule) => rule.name === name);
  showRule();
}

// The old picture stays until the ranking by the new rule is there; one under way asks for it by itself.
async function chooseRule(name) {
  setRule(name);
  if (state.ranking && !rankingUnderWay) await rank(state.names);
}

function setValue(value) {
  state.values[state.rule.parameter.name] = value;
  rules.showValue(value);
  if (!isRanked()) return;
  showResult();
  showShares();
}

function take(files, title) {
  if (files.length) attempt(() => openOwn(files[0], title));
}

connect();
attempt(begin);
