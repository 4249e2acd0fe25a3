// What is asked for: words and marks on photos, with undo and redo, and a colour for each word that stays with it.

const NOT = "not:";

let states = [{ words: [], marks: [] }]; // none of them is ever changed
let position = 0;
const slots = new Map(); // of words, places in the list of colours

export function current() {
  return states[position];
}

export function change(next) {
  states = [...states.slice(0, position + 1), { ...current(), ...next }];
  position++;
}

// Begin anew: nothing can be undone.
export function reset(first) {
  states = [first];
  position = 0;
}

// Take the newest change back as if it had never been made.
export function drop(state) {
  if (current() !== state || !position) return;
  states = states.slice(0, position);
  position--;
}

// Put what was understood in the place of what was asked, as no step of its own.
export function correct(next) {
  states[position] = { ...current(), ...next };
}

export function canStep(by) {
  return position + by in states;
}

export function step(by) {
  if (canStep(by)) position += by;
}

export function isExclusion(word) {
  return word.toLowerCase().startsWith(NOT);
}

// The words that become classes; the label of each is its place among them.
export function wanted() {
  return current().words.filter((word) => !isExclusion(word));
}

export function withWords(added) {
  const { words } = current();
  return [...words, ...[...new Set(added)].filter((word) => !words.includes(word))];
}

export function without(word) {
  const { words, marks } = current();
  return { words: words.filter((other) => other !== word), marks: marks.filter(({ name }) => name !== word) };
}

export function slotOf(word) {
  const used = new Set(current().words.filter((other) => other !== word).map((other) => slots.get(other)));
  if (!slots.has(word) || used.has(slots.get(word))) {
    let slot = 0;
    while (used.has(slot)) slot++;
    slots.set(word, slot);
  }
  return slots.get(word);
}

// A word that is written otherwise from now on keeps its colour.
export function rename(word, other) {
  slots.set(other, slotOf(word));
}

// Names, points on this photo and examples on others, as the service takes them; scenes of other photos must be known.
export function request(photo) {
  const { words, marks } = current();
  const points = {};
  const examples = {};
  for (const mark of marks) {
    const point = toScene(mark);
    if (mark.photo === photo) (points[mark.name] ??= []).push(point);
    else {
      const listed = (examples[mark.name] ??= []);
      const same = listed.find(({ scene }) => scene === mark.photo.scene);
      if (same) same.points.push(point);
      else listed.push({ scene: mark.photo.scene, points: [point] });
    }
  }
  return { names: words, points, examples };
}

export function photosWithMarks() {
  return [...new Set(current().marks.map(({ photo }) => photo))];
}

function toScene({ photo, x, y, positive }) {
  const scaled = (value, from, to) => Math.min(to - 1, Math.floor(((value + 0.5) * to) / from));
  return [scaled(x, photo.width, photo.sentWidth), scaled(y, photo.height, photo.sentHeight), positive];
}
