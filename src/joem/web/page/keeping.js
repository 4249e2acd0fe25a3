// The buttons that save files, copy the link and show code; none of it is needed for the first answer.

import { announce, attempt, element } from "./elements.js";
import { read } from "./photos.js";
import * as saving from "./saving.js";
import * as session from "./session.js";
import { snippets } from "./sharing.js";
import * as stage from "./stage.js";
import * as vocabulary from "./vocabulary.js";
import { zip } from "./zip.js";

const { state } = session;

export function connectKeeping(link) {
  const on = (id, action) => element(id).addEventListener("click", () => attempt("save", () => working(id, action)));
  on("save-mask", async () => saving.save(await saving.mask(await session.fullSize(state.photo)), "mask.png"));
  on("save-overlay", async () => saving.save(await saving.overlay(stage.pixels(), await session.fullSize(state.photo)), "overlay.png"));
  on("save-coco", async () => saving.save(saving.json(await session.coco(state.photo)), "coco.json"));
  on("save-cut", saveCutOut);
  on("save-all", saveAll);
  on("copy-link", async () => {
    const url = `${location.origin}${location.pathname}${link()}`;
    history.replaceState(null, "", link());
    await copy(url, "link");
  });
  on("copy-code", () => copy(element("snippet").textContent, "code"));
  element("share-box").addEventListener("toggle", showSnippet);
  element("languages").addEventListener("change", showSnippet);
  session.onChange((what) => what === "result" && showSnippet());
}

// One at a time: a large photo takes seconds.
async function working(id, action) {
  element(id).disabled = true;
  announce("Working on it.");
  try {
    await action();
  } finally {
    element(id).disabled = false;
  }
}

async function saveCutOut() {
  const name = element("cut-name").value;
  const result = await session.fullSize(state.photo);
  saving.save(await saving.cutOut(stage.pixels(), result, result.names.indexOf(name)), `cut-out-${saving.safe(name)}.png`);
}

// A folder for every photo with the files that `joem predict` writes.
async function saveAll() {
  const files = [];
  const used = new Set();
  const { textContent } = element("save-all");
  try {
    await addFiles(files, used);
  } finally {
    element("save-all").textContent = textContent;
  }
  saving.save(await zip(files), "found.zip");
}

async function addFiles(files, used) {
  for (const [index, photo] of state.own.entries()) {
    announce(`Photo ${index + 1} of ${state.own.length}.`);
    element("save-all").textContent = `Photo ${index + 1} of ${state.own.length} …`;
    const bitmap = await read(photo, state.model.limits);
    let folder = saving.safe(photo.title);
    for (let number = 2; used.has(folder.toLowerCase()); number++) folder = `${saving.safe(photo.title)}-${number}`;
    used.add(folder.toLowerCase());
    const result = await session.fullSize(photo);
    files.push([`${folder}/mask.png`, await saving.mask(result)]);
    files.push([`${folder}/overlay.png`, await saving.overlay(bitmap, result)]);
    files.push([`${folder}/coco.json`, saving.json(await session.coco(photo))]);
    files.push([`${folder}/result.json`, saving.summary(result)]);
    bitmap.close();
  }
}

// Without a clipboard, as on an address without encryption, the text is selected to be copied by hand.
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`Copied the ${what}.`);
  } catch {
    prompt(`Copy the ${what}:`, text);
  }
}

function showSnippet() {
  if (!element("share-box").open) return;
  if (!state.ranking) return void (element("snippet").textContent = "Name something first.");
  const { rule, min_score, ...values } = session.decision();
  const nameOf = (photo) => (/\.\w+$/.test(photo.title) ? photo.title : `${photo.title}.jpg`);
  const { words, marks } = vocabulary.current();
  const asked = {
    model: state.model.name,
    file: nameOf(state.photo),
    words,
    rule,
    values,
    min_score,
    background: state.background,
    marks: marks.map(({ photo, ...mark }) => ({ ...mark, file: nameOf(photo) })),
    request: session.requestShown(),
    type: state.photo.file.type || "image/png",
  };
  const chosen = element("languages").querySelector(":checked").value;
  element("snippet").textContent = snippets(asked, `${location.origin}${location.pathname}`)[chosen];
}
