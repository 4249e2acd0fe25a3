// A link that carries words and settings, and the same request in Python, on the command line and with curl.

const SETTINGS = ["rule", "min_score", "background", "model", "sample"];

// What a link holds, in the part after #, which is not sent to any server.
export function toHash({ words, values, ...rest }) {
  const found = new URLSearchParams();
  if (words.length) found.set("words", words.join(","));
  for (const name of SETTINGS) if (rest[name] !== undefined && rest[name] !== null) found.set(name, rest[name]);
  for (const [name, value] of Object.entries(values)) found.set(name, value);
  return `#${found}`;
}

export function fromHash(hash, parameters) {
  const found = new URLSearchParams(hash.slice(1));
  const number = (name) => (found.has(name) && Number.isFinite(Number(found.get(name))) ? Number(found.get(name)) : undefined);
  return {
    words: found.has("words") ? split(found.get("words")) : null,
    rule: found.get("rule"),
    model: found.get("model"),
    sample: number("sample"),
    min_score: number("min_score"),
    background: found.has("background") ? found.get("background") === "true" : undefined,
    values: Object.fromEntries(parameters.map((name) => [name, number(name)]).filter(([, value]) => value !== undefined)),
  };
}

export function split(text) {
  return [...new Set(text.split(",").map((name) => name.trim()).filter(Boolean))];
}

// `asked` is {model, file, words, rule, values, min_score, background, marks}; marks are {name, file, x, y, positive}.
export function snippets(asked, address) {
  return { python: python(asked), shell: shell(asked), curl: curl(asked, address) };
}

function grouped(marks, file, own) {
  const found = new Map();
  for (const mark of marks.filter((one) => (one.file === file) === own)) {
    const key = own ? mark.name : `${mark.name}\0${mark.file}`;
    found.set(key, [...(found.get(key) ?? []), mark]);
  }
  return [...found.values()];
}

function python({ model, file, words, rule, values, min_score, background, marks }) {
  const text = (value) => JSON.stringify(value);
  const point = ({ x, y, positive }) => (positive ? `(${x}, ${y})` : `(${x}, ${y}, False)`);
  const shown = grouped(marks, file, false).map((each) =>
    `model = model.with_examples(${text(each[0].name)}, [(${text(each[0].file)}, [${each.map(point).join(", ")}])])`);
  const points = grouped(marks, file, true).map((each) => `${text(each[0].name)}: [${each.map(point).join(", ")}]`);
  const options = [
    `rule=${text(rule)}`,
    ...Object.entries(values).map(([name, value]) => `${name}=${value}`),
    ...(min_score ? [`min_score=${min_score}`] : []),
    ...(background ? [] : ["background=False"]),
    ...(points.length ? [`points={${points.join(", ")}}`] : []),
  ];
  return [
    "from joem import Segmenter",
    "",
    `model = Segmenter.load(${text(model)})`,
    ...shown,
    `result = model(${text(file)}, [${words.map(text).join(", ")}], ${options.join(", ")})`,
    'result.save("found")',
  ].join("\n");
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function shell({ model, file, words, rule, values, min_score, background, marks }) {
  const point = ({ x, y, positive }) => `${positive ? "" : "!"}${x}:${y}`;
  const shown = [...grouped(marks, file, true), ...grouped(marks, file, false)].map((each) =>
    `--example ${quoted(`${each[0].name}=${each[0].file},${each.map(point).join(",")}`)}`);
  const options = [
    `--model ${quoted(model)}`,
    `--classes ${quoted(words.join(", "))}`,
    ...shown,
    `--rule ${rule}`,
    ...Object.entries(values).map(([name, value]) => `--${name} ${value}`),
    ...(min_score ? [`--min-score ${min_score}`] : []),
    ...(background ? [] : ["--no-background"]),
    "--out found",
  ];
  return `joem predict ${quoted(file)} \\\n  ${options.join(" \\\n  ")}`;
}

function curl({ model, file, request, type }, address) {
  const base = `${address}api/scenes`;
  return [
    `scene=$(curl -s -H ${quoted(`Content-Type: ${type}`)} --data-binary @${quoted(file)} \\`,
    `  ${quoted(`${base}?model=${encodeURIComponent(model)}`)} | sed 's/.*"scene":"\\([0-9a-f]*\\)".*/\\1/')`,
    `curl -H 'Content-Type: application/json' -o mask.png "${base}/$scene/mask" \\`,
    `  -d ${quoted(JSON.stringify(request))}`,
  ].join("\n");
}
