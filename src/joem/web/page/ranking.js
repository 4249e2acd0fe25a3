// A ranking from the service, and the rules that turn it into labels: the same labels, to the last pixel, as the
// service's own. Distances arrive as float32; Math.fround rounds each product and difference as float32 arithmetic does.

export const NONE = 255;

// The form is described in wire.py.
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const pixels = header.width * header.height;
  let offset = 4 + length;
  const plane = (Type) => {
    const values = new Type(buffer, offset, pixels);
    offset += values.byteLength;
    return values;
  };
  return {
    ...header,
    seenDistance: plane(Float32Array),
    secondSeenDistance: plane(Float32Array),
    unseenDistance: plane(Float32Array),
    seen: plane(Uint8Array),
    unseen: plane(Uint8Array),
    isUnseen: header.names.map((name) => header.unseen.includes(name)),
  };
}

// For each rule: does the nearest unseen class (at distance u) win over the nearest seen one (s; the second one s2)?
const RULES = {
  nn: () => (s, s2, u) => u < s,
  cs: ({ gamma }) => {
    const margin = Math.fround(gamma);
    return (s, s2, u) => Math.fround(u - margin) < s;
  },
  ac: (settings) => {
    const limit = ratioLimit(settings);
    return (s, s2, u) => u < s2 && s > Math.fround(limit * u);
  },
  ratio: (settings) => {
    const limit = ratioLimit(settings);
    return (s, s2, u) => s > Math.fround(limit * u);
  },
};

function ratioLimit({ sigma, squared }) {
  return Math.fround(squared ? Math.sqrt(sigma) : sigma);
}

export function decide(ranking, rule, settings) {
  const unseenWins = RULES[rule](settings);
  const { seen, unseen, seenDistance: s, secondSeenDistance: s2, unseenDistance: u } = ranking;
  const labels = new Uint8Array(seen.length);
  for (let i = 0; i < labels.length; i++) labels[i] = unseenWins(s[i], s2[i], u[i]) ? unseen[i] : seen[i];
  return labels;
}

// The two nearest classes of a pixel; the label of a second nearest seen class is not in the ranking, so it is NONE.
export function nearestTwo(ranking, i) {
  return [
    { label: ranking.seen[i], distance: ranking.seenDistance[i] },
    { label: ranking.unseen[i], distance: ranking.unseenDistance[i] },
    { label: NONE, distance: ranking.secondSeenDistance[i] },
  ]
    .filter((one) => one.distance < Infinity)
    .sort((a, b) => a.distance - b.distance) // stable: where distances tie, seen classes come first
    .slice(0, 2);
}
