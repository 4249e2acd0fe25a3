// The page: what is on it shows the session, and what people do on it changes the session.

import { showChips, neighbourOf } from "./chips.js";
import { announce, attempt, element, make, percent, tell } from "./elements.js";
import { explain, forgetPixel, visitedPixel } from "./explaining.js";
import * as naming from "./naming.js";
import { photoOf } from "./photos.js";
import { onPointing, showCross } from "./pointing.js";
import { NONE, OTHER } from "./ranking.js";
import * as rules from "./rules.js";
import { call } from "./service.js";
import * as session from "./session.js";
import { fromHash, split, toHash } from "./sharing.js";
import * as stage from "./stage.js";
import * as view from "./view.js";
import * as vocabulary from "./vocabulary.js";

const { state } = session;
const SUGGESTED = 8;
let curve = null; // {ranking, scale, shares}
let lastName = null; // given to a mark

// ---- showing

session.onChange((what) => ({ model: showModel, rule: showRule, photo: showPhotos, words: showWords, result: showResult })[what]());

function showModel() {
  const { model, samples } = state;
  rules.showChoices(model.rules);
  element("taught").replaceChildren(...model.taught.flatMap(({ title, text }) => [make("dt", { textContent: title }), make("dd", { textContent: text })]));
  element("least-row").hidden = !model.has_scores;
  element("background-row").hidden = model.background === null;
  element("samples").replaceChildren(...samples.map((sample, index) => {
    const image = make("img", { alt: sample.about ? sample.title : "", width: 96, height: 96 });
    const button = make("button", { type: "button", title: sample.title, ariaPressed: "false" }, image, make("span", { textContent: sample.about ?? sample.title }));
    button.addEventListener("click", () => attempt("photo", () => session.openSample(index)));
    return make("li", {}, button);
  }));
  showRule();
}

// Sample photos come one after another, once there is something to look at.
async function loadSamples() {
  for (const [index, item] of [...element("samples").children].entries()) {
    const { file } = await session.sampleOf(index);
    item.querySelector("img").src = URL.createObjectURL(file);
  }
}

function showPhotos() {
  const { own, photo } = state;
  element("thumbs").hidden = !own.length;
  const old = new Map([...element("thumbs").children].map((item) => [item.photo, item]));
  element("thumbs").replaceChildren(...own.map((one) => old.get(one) ?? thumb(one)));
  for (const item of element("thumbs").children) {
    item.querySelector("button").setAttribute("aria-pressed", item.photo === photo);
    const image = item.querySelector("img");
    if (item.photo.thumbnail && !image.src) image.src = URL.createObjectURL(item.photo.thumbnail);
  }
  for (const [index, item] of [...element("samples").children].entries()) {
    item.querySelector("button").setAttribute("aria-pressed", photo?.sample === index && !own.includes(photo));
  }
  element("size").textContent = photo ? `Files have the photo’s full size, ${photo.width} × ${photo.height}.` : "";
  element("save-all").hidden = own.length < 2;
  naming.close();
  forgetPixel();
}

function thumb(photo) {
  const button = make("button", { type: "button", title: photo.title }, make("img", { alt: photo.title, width: 64, height: 64 }));
  button.addEventListener("click", () => attempt("photo", () => session.openOwn(photo)));
  return Object.assign(make("li", {}, button), { photo });
}

function showWords() {
  element("undo").disabled = !vocabulary.canStep(-1);
  element("redo").disabled = !vocabulary.canStep(1);
  const { words, marks } = vocabulary.current();
  const left = state.model.names.filter((name) => name !== state.model.background && !words.includes(name));
  const offers = words.length > 1 ? [] : left.slice(0, SUGGESTED);
  const buttons = offers.map((name) => suggestion(name, [name]));
  if (offers.length && left.length > offers.length) buttons.push(suggestion(`all ${left.length} it was taught`, left));
  element("suggested").replaceChildren(...buttons);
  showClasses();
  stage.showMarks(marks.filter(({ photo }) => photo === state.photo).map((mark) => ({ ...mark, colour: colourOf(mark.name) })));
}

function suggestion(text, added) {
  const button = make("button", { type: "button", textContent: text });
  button.addEventListener("click", () => attempt("words", () => session.propose({ words: vocabulary.withWords(added) })));
  return button;
}

function colourOf(word) {
  return state.model.colours[vocabulary.slotOf(word)];
}

function showResult() {
  const { ranking, names, shares, colours, labels, places, model } = state;
  const rest = names.map((name, label) => [name, shares[label]]).filter(([name], label) => ![...places.values()].includes(label) && [model.background, OTHER].includes(name));
  element("rest").textContent = rest.map(([name, share]) => `${name} ${share ? percent(share) : "0 %"}`).join(", ");
  element("rest").hidden = !rest.length;
  element("notes").textContent = ranking?.notes.join(" ") ?? "";
  element("notes").hidden = !ranking?.notes.length;
  for (const id of ["save-mask", "save-overlay", "save-coco", "save-all", "save-cut"]) element(id).disabled = !labels;
  const cut = element("cut-name").value;
  const choices = names.filter((name, label) => shares[label] > 0);
  const asked = choices.filter((name) => name !== model.background && name !== OTHER);
  element("cut-name").replaceChildren(...[...asked, ...choices.filter((name) => !asked.includes(name))].map((name) => make("option", { value: name, textContent: name })));
  if (choices.includes(cut)) element("cut-name").value = cut;
  element("cut-name").hidden = !choices.length;
  showShare();
  showWords();
  const at = visitedPixel();
  if (at && labels) visit(at.x, at.y, false);
  else if (!labels) forgetPixel();
}

// Words that were just added have no share yet.
function showClasses() {
  const { words, marks } = vocabulary.current();
  showChips(words.map((word) => classOf(word, marks)), (word) => attempt("words", () => removeWord(word)));
}

function classOf(word, marks) {
  const label = state.places.get(word);
  const count = marks.filter(({ name, positive }) => name === word && positive).length;
  if (label === undefined || !state.ranking) {
    return { word, name: word, colour: vocabulary.isExclusion(word) ? null : colourOf(word), kind: "", isNew: false };
  }
  const { names, colours, shares, ranking } = state;
  const isNew = ranking.isUnseen[label];
  const shown = count ? `${count} ${count === 1 ? "mark" : "marks"}` : "";
  const kind = isNew && count ? shown : [isNew ? "new" : "trained", shown].filter(Boolean).join(", ");
  return { word, name: names[label], colour: colours[label], kind, isNew: isNew && !count, share: shares[label] };
}

function showShare() {
  const { ranking, shares, rule, scale } = state;
  const isNew = (ranking?.unseen.length ?? 0) > 0;
  element("more").disabled = !rule.parameter || (ranking && !isNew);
  if (!ranking) return void (element("share").textContent = "");
  const unseen = shares.filter((_, label) => ranking.isUnseen[label]).reduce((sum, share) => sum + share, 0);
  element("share").textContent = isNew ? `New classes cover ${unseen ? percent(unseen) : "0 %"} of the picture.` : "No word is new: nothing to decide between.";
  if (!scale || ranking.rule !== rule.name || !element("advanced").open) return;
  if (curve?.ranking !== ranking || curve?.scale !== scale) curve = { ranking, scale, shares: rules.sharesOf(ranking, rule.parameter, scale, NONE) };
  rules.showCurve(curve.shares, scale.to(session.value()));
}

function showRule() {
  if (element("rules").childElementCount) rules.showRule(state.rule, session.value(), state.scale);
}

// ---- what people do

function visit(x, y, aloud) {
  const { ranking, labels, names, colours, rule, photo } = state;
  if (!labels) return;
  const column = Math.floor(((x + 0.5) * photo.sentWidth) / photo.width);
  const row = Math.floor(((y + 0.5) * photo.sentHeight) / photo.height);
  const shown = { ranking, labels, names, colours, rule, value: session.value() };
  explain(shown, x, y, row * photo.sentWidth + column, aloud, () => session.explanation(column, row));
}

function mark(points, byTouch) {
  const { labels, names, photo, model, places } = state;
  const middle = points[points.length >> 1];
  const label = labels?.[Math.floor(((middle.y + 0.5) * photo.sentHeight) / photo.height) * photo.sentWidth + Math.floor(((middle.x + 0.5) * photo.sentWidth) / photo.width)];
  const word = [...places].find(([, at]) => at === label)?.[0];
  const here = word && names[label] !== model.background ? word : null;
  const offers = [...new Set([lastName, here, ...vocabulary.wanted().toReversed()])].filter((name) => name && vocabulary.wanted().includes(name));
  const at = view.toStage(middle.x + 0.5, middle.y + 0.5);
  const box = element("stage");
  naming.askName({ x: at.x + box.offsetLeft, y: at.y + box.offsetTop }, offers, here, byTouch, async (name, positive) => {
    const added = points.map((point) => ({ ...point, name, positive, photo }));
    await session.propose({ words: vocabulary.withWords([name]), marks: [...vocabulary.current().marks, ...added] });
    lastName = positive ? name : lastName;
    element("cross").hidden = true; // or it would hide the mark
  });
}

async function addWords() {
  const added = split(element("words").value);
  const words = vocabulary.withWords(added);
  if (words.length > vocabulary.current().words.length) await session.propose({ words });
  element("words").value = "";
}

async function removeWord(word) {
  const next = neighbourOf(word);
  await session.propose(vocabulary.without(word));
  (next?.isConnected ? next : element("words")).focus();
}

function keepFound() {
  const gone = vocabulary.wanted().filter((word) => state.shares[state.places.get(word)] === 0);
  const { words, marks } = vocabulary.current();
  return session.propose({ words: words.filter((word) => !gone.includes(word)), marks: marks.filter(({ name }) => !gone.includes(name)) });
}

function take(files, pasted) {
  const found = [...files].map((file) => photoOf(file, pasted ? "pasted picture" : file.name));
  if (!found.length) return;
  return attempt("photo", async () => {
    state.own.push(...found);
    await session.openOwn(found[0]);
    element("words").focus({ preventScroll: true });
    await thumbnails(found.slice(1));
  });
}

// Of photos that nobody has looked at yet.
async function thumbnails(photos) {
  const unread = [];
  for (const photo of photos) {
    try {
      const bitmap = await createImageBitmap(photo.file, { resizeWidth: 160, resizeQuality: "medium" });
      const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
      canvas.getContext("2d").drawImage(bitmap, 0, 0);
      photo.thumbnail ??= await canvas.convertToBlob({ type: "image/jpeg" });
    } catch {
      unread.push(photo.title); // the service may read it, when it is chosen
    }
  }
  showPhotos();
}

function word({ message, word, near }, box) {
  if (!word) return tell(box, { message });
  const offers = (near ?? []).map((other) => {
    const button = make("button", { type: "button", textContent: other });
    button.addEventListener("click", () => {
      element("words").value = element("words").value.replaceAll(word, other);
      attempt("words", addWords, showWordProblem);
    });
    return button;
  });
  box.replaceChildren(make("p", { textContent: `The word vectors do not know “${word}”.${offers.length ? " Did you mean:" : ""}` }), ...offers);
  box.hidden = false;
}

function showWordProblem(box, problem) {
  word(problem, box);
}

function link() {
  const { words } = vocabulary.current();
  const { rule, ...values } = session.decision();
  delete values.min_score;
  const sample = state.own.includes(state.photo) ? undefined : state.photo?.sample;
  const model = element("model-choice").hidden ? undefined : state.model.name;
  return toHash({ words, rule, values, model, sample, min_score: state.minScore || undefined, background: state.background ? undefined : false });
}

function connect() {
  const on = (id, event, act) => element(id).addEventListener(event, act);
  on("file", "change", ({ target }) => take(target.files));
  on("add", "submit", (event) => {
    event.preventDefault();
    attempt("words", addWords, showWordProblem);
  });
  on("clear", "click", () => attempt("words", () => session.propose({ words: [], marks: [] })));
  on("found", "click", () => attempt("words", keepFound));
  on("undo", "click", () => attempt("words", () => session.stepBack(-1)));
  on("redo", "click", () => attempt("words", () => session.stepBack(1)));
  for (const [id, other] of [["tool-name", "tool-move"], ["tool-move", "tool-name"]]) {
    on(id, "click", () => {
      element(id).setAttribute("aria-pressed", true);
      element(other).setAttribute("aria-pressed", false);
      element("stage").classList.toggle("moving", id === "tool-move");
    });
  }
  for (const id of ["compare", "opacity"]) on(id, "input", stage.draw);
  on("rules", "change", ({ target }) => attempt("decide", () => chooseRule(target.value)));
  on("more", "input", ({ target }) => setValue(state.scale.from(Number(target.value))));
  on("more", "change", () => state.labels && announce(session.summary()));
  on("value", "input", ({ target }) => {
    const { parameter } = state.rule;
    const value = Number(target.value);
    const allowed = target.value !== "" && (value > 0 || (value === 0 && parameter.neutral === 0)) && value <= (parameter.largest ?? Infinity);
    if (allowed) setValue(value);
  });
  on("least", "input", ({ target }) => {
    element("least-shown").textContent = `${target.value} %`;
    attempt("decide", () => session.setMinScore(Number(target.value) / 100));
  });
  on("advanced", "toggle", showShare);
  on("background", "change", ({ target }) => attempt("decide", () => session.setBackground(target.checked)));
  on("model", "change", ({ target }) => attempt("photo", () => chooseModel(target.value)));
  onPointing(visit, mark);
  addEventListener("paste", ({ clipboardData }) => take(clipboardData.files, true));
  addEventListener("dragover", (event) => {
    event.preventDefault();
    element("drop-hint").hidden = false;
  });
  addEventListener("dragleave", ({ relatedTarget }) => (element("drop-hint").hidden = relatedTarget === null));
  addEventListener("drop", (event) => {
    event.preventDefault();
    element("drop-hint").hidden = true;
    take(event.dataTransfer.files);
  });
  addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || event.target.matches("input[type=text]")) return;
    event.preventDefault();
    attempt("words", () => session.stepBack(event.shiftKey ? 1 : -1));
  });
  addEventListener("resize", showCross);
}

// The old picture stays until the ranking by the new rule is there; one under way asks for it by itself.
async function chooseRule(name) {
  session.setRule(name);
  if (state.ranking && element("stage").getAttribute("aria-busy") === "false") await session.rank();
}

function setValue(value) {
  session.setValue(value);
  rules.showValue(value, state.scale);
}

async function chooseModel(name) {
  await session.loadModel(name);
  if (state.own.includes(state.photo)) await session.open(state.photo);
  else if (state.samples.length) await session.openSample(0);
  await loadSamples();
}

async function begin() {
  const { model } = fromHash(location.hash, []);
  const listed = call("api/models").then((answer) => answer.json());
  if (model && !(await listed).some(({ name }) => name === model)) await session.loadModel(null);
  else await session.loadModel(model);
  const models = await listed;
  element("model").replaceChildren(...models.map(({ name }) => make("option", { value: name, textContent: name })));
  element("model-choice").hidden = models.length < 2;
  element("model").value = state.model.name;
  const given = fromHash(location.hash, Object.keys(state.values));
  Object.assign(state.values, given.values);
  if (given.rule) session.setRule(given.rule);
  else showRule();
  if (given.background !== undefined) element("background").checked = state.background = given.background;
  if (given.min_score && state.model.has_scores) {
    state.minScore = Math.min(0.95, Math.max(0, given.min_score));
    element("least").value = 100 * state.minScore;
    element("least-shown").textContent = `${element("least").value} %`;
  }
  element("words").focus({ preventScroll: true });
  if (!state.samples.length) return stage.showBusy(false);
  const first = given.sample in state.samples ? given.sample : 0;
  if (given.words) await openWith(first, given.words);
  else await session.openSample(first);
  await loadSamples();
}

async function openWith(index, words) {
  const { photo } = await session.sampleOf(index);
  vocabulary.reset({ words, marks: [] });
  await session.open(photo);
}

connect();
attempt("photo", begin);
import("./keeping.js").then(({ connectKeeping }) => connectKeeping(link));
