// What the page works on: a model, photos, what is asked for, how it is decided, and what came back.

import { announce, percent } from "./elements.js";
import * as photos from "./photos.js";
import { readLabels } from "./png.js";
import { decide, namesOf, OTHER, unpack } from "./ranking.js";
import { scaleOf } from "./rules.js";
import { call } from "./service.js";
import * as stage from "./stage.js";
import * as vocabulary from "./vocabulary.js";

export const state = {
  model: null, // as the service describes it
  samples: [],
  photo: null, // the one that is shown
  own: [], // photos of one's own
  ranking: null,
  labels: null, // of the ranking's pixels
  names: [],
  colours: [],
  shares: [], // of the picture, by label
  places: new Map(), // from words to their labels
  rule: null,
  values: {}, // of the parameters of rules
  scale: null, // of the slider
  minScore: 0,
  background: true,
};
let latest = new AbortController(); // of the newest ranking asked for
let opening = 0;
let borrowed = null; // what is asked for because of a sample
let ranked = null; // what the ranking was asked for with
const listeners = [];

// Call a function whenever there is something new to show.
export function onChange(listener) {
  listeners.push(listener);
}

function changed(what) {
  for (const listener of listeners) listener(what);
}

// ---- the model

export async function loadModel(name) {
  const query = name ? `?model=${encodeURIComponent(name)}` : "";
  const answers = await Promise.all([call(`api/model${query}`), call(`api/samples${query}`)]);
  const [model, samples] = await Promise.all(answers.map((answer) => answer.json()));
  Object.assign(state, { model, samples, ranking: null, labels: null, values: { ...model.decision.values } });
  const own = model.rules.find((rule) => rule.name === model.decision.rule);
  setRule((own.parameter ? own : model.rules.find((rule) => rule.parameter)).name); // at first it decides like the other
  for (const photo of [...state.own, ...vocabulary.photosWithMarks()]) photo.scene = null;
  changed("model");
}

export function setRule(name) {
  state.rule = state.model.rules.find((rule) => rule.name === name) ?? state.rule;
  const { parameter } = state.rule;
  state.scale = parameter && scaleOf(parameter, state.model.decision.values[parameter.name], state.model.strongest[parameter.name]);
  changed("rule");
}

// The value of the chosen rule's parameter, if it has one.
export function value() {
  return state.values[state.rule.parameter?.name];
}

// ---- photos

export async function sampleOf(index) {
  const sample = state.samples[index];
  sample.file ??= await (await call(sample.url.slice(1))).blob();
  sample.photo ??= photos.photoOf(sample.file, sample.title, index);
  return sample;
}

export async function openSample(index) {
  const sample = await sampleOf(index);
  const words = [...(sample.names ?? []), ...Object.keys(sample.points)];
  const marks = Object.entries(sample.points).flatMap(([name, points]) =>
    points.map(([x, y, positive = true]) => ({ name, x, y, positive, photo: sample.photo })));
  const before = vocabulary.current();
  if (before.words.length) vocabulary.change({ words, marks });
  else vocabulary.reset({ words, marks });
  borrowed = vocabulary.current();
  await open(sample.photo);
}

// A photo of one's own keeps the words that someone has chosen, not those of a sample.
export async function openOwn(photo) {
  if (!state.own.includes(photo)) state.own.push(photo);
  if (vocabulary.current() === borrowed) vocabulary.change({ words: [], marks: [] });
  borrowed = null;
  await open(photo);
}

export async function open(photo) {
  const number = ++opening;
  latest.abort();
  announce(`Reading ${photo.title}.`);
  stage.showBusy(true);
  try {
    const bitmap = await photos.read(photo, state.model.limits);
    if (number !== opening) return bitmap.close();
    if (photo.sample === null) photo.thumbnail ??= await photos.thumbnail(bitmap);
    Object.assign(state, { photo, ranking: null, labels: null });
    stage.showPhoto(bitmap);
    changed("photo");
  } catch (problem) {
    state.own = state.own.filter((one) => one !== photo || one === state.photo);
    if (number === opening) stage.showBusy(false);
    changed("photo");
    throw problem;
  }
  await rank();
}

// ---- what is asked for

// Ask for something else; if it cannot be understood, nothing has changed.
export async function propose(next) {
  vocabulary.change(next);
  const proposed = vocabulary.current();
  try {
    await rank();
  } catch (problem) {
    if (problem.name === "AbortError") throw problem; // something newer was asked for
    vocabulary.drop(proposed);
    changed("words");
    if (ranked !== vocabulary.current()) await rank().catch(() => {});
    throw problem;
  }
}

export async function stepBack(by) {
  vocabulary.step(by);
  await rank();
}

function ask(photo, what, more, signal) {
  const others = vocabulary.photosWithMarks().filter((one) => one !== photo);
  const request = () => ({ ...vocabulary.request(photo), background: state.background, ...more });
  return photos.ask(photo, others, state.model.name, what, request, signal);
}

export async function rank() {
  latest.abort();
  if (!state.photo) return;
  const current = (latest = new AbortController());
  changed("words");
  if (!vocabulary.wanted().length) {
    await photos.encode(state.photo, state.model.name).catch(() => {}); // while words are being typed
    if (!current.signal.aborted) showNothing();
    return;
  }
  stage.showBusy(true);
  try {
    const asked = vocabulary.current();
    const ranking = await askRanking(current.signal);
    if (current.signal.aborted) return;
    state.ranking = ranking;
    understood(ranking);
    ranked = vocabulary.current() === asked ? asked : vocabulary.current();
    if (borrowed === asked) borrowed = ranked;
    showResult();
    announce(summary());
  } finally {
    if (current === latest) endRanking();
  }
}

async function askRanking(signal) {
  for (;;) {
    const [rule, scores] = [state.rule.name, state.minScore > 0];
    const answer = await ask(state.photo, "ranking", { rule, ...(scores && { scores }) }, signal);
    const ranking = unpack(await answer.arrayBuffer(), scores);
    // Or something else was chosen meanwhile.
    if (signal.aborted || (rule === state.rule.name && (scores || !state.minScore))) return ranking;
  }
}

function endRanking() {
  stage.showBusy(false);
  if (state.ranking && state.ranking.rule !== state.rule.name) setRule(state.ranking.rule); // it failed: what is shown
}

function showNothing() {
  Object.assign(state, { ranking: null, labels: null, names: [], colours: [], shares: [], places: new Map() });
  ranked = vocabulary.current();
  stage.showLabels(null, {}, [], [], []);
  stage.showBusy(false);
  announce(`${state.photo.title}: nothing is asked for yet.`);
  changed("result");
}

// Where words mean one class, they are one from now on; and which label belongs to which word.
function understood({ asked }) {
  const words = vocabulary.wanted();
  const { background } = state.model;
  const own = asked.filter((one) => words.includes(one) || (one !== background && one !== OTHER));
  if (own.length !== words.length) {
    for (const word of own) if (!words.includes(word)) vocabulary.rename(word.split("|")[0], word);
    vocabulary.correct({ words: [...own, ...vocabulary.current().words.filter(vocabulary.isExclusion)] });
  }
  state.places = new Map(own.map((word) => [word, asked.indexOf(word)]));
}

// ---- deciding

export function showResult() {
  const { ranking, rule, model, minScore, photo } = state;
  if (!ranking || ranking.rule !== rule.name) return;
  state.labels = decide(ranking, rule.parameter, value(), minScore);
  state.names = namesOf(ranking, minScore);
  const slots = new Map([...state.places].map(([word, label]) => [label, vocabulary.slotOf(word)]));
  state.colours = state.names.map((name, label) =>
    slots.has(label) && name !== model.background ? model.colours[slots.get(label)] : ranking.colours[label] ?? [150, 150, 150]);
  const counts = new Uint32Array(256);
  for (const label of state.labels) counts[label]++;
  state.shares = state.names.map((_, label) => counts[label] / state.labels.length);
  stage.showLabels(state.labels, { width: photo.sentWidth, height: photo.sentHeight }, state.names, state.colours, [model.background, OTHER]);
  changed("result");
}

export function setValue(value) {
  state.values[state.rule.parameter.name] = value;
  showResult();
}

export async function setMinScore(least) {
  state.minScore = least;
  if (least > 0 && state.ranking && !state.ranking.seenScore) await rank();
  else showResult();
}

export async function setBackground(background) {
  state.background = background;
  await rank();
}

export function summary() {
  const { names, shares, photo } = state;
  const order = shares.map((_, label) => label).sort((a, b) => shares[b] - shares[a]);
  const large = order.filter((label) => shares[label] >= 0.005).slice(0, 6);
  return `${photo.title}: ${large.map((label) => `${names[label]} ${percent(shares[label])}`).join(", ")}.`;
}

// ---- answers for whoever asks further

export function decision() {
  const { rule, minScore } = state;
  const values = rule.parameter ? { [rule.parameter.name]: value() } : {};
  return { rule: rule.name, ...values, ...(minScore > 0 && { min_score: minScore }) };
}

export async function explanation(x, y) {
  return (await ask(state.photo, "explain", { x, y })).json();
}

export async function coco(photo) {
  const { width, height } = photo;
  return (await ask(photo, "coco", { ...decision(), width, height, file_name: photo.title })).json();
}

// Labels as large as the photo; the service decides anew where it was reduced.
export async function fullSize(photo) {
  const { width, height } = photo;
  const known = { width, height, names: state.names, colours: state.colours, unseen: state.ranking.unseen, notes: state.ranking.notes };
  if (photo === state.photo && !photos.isReduced(photo)) return { ...known, labels: state.labels };
  const answer = await ask(photo, "mask", { ...decision(), width, height });
  return { ...known, labels: await readLabels(await answer.arrayBuffer(), width, height) };
}

export function isRanked() {
  return Boolean(state.labels);
}

export function requestShown() {
  return { ...vocabulary.request(state.photo), background: state.background, ...decision() };
}

