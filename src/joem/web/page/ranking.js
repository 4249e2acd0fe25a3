// A ranking from the service, and labels from it: the same labels, to the last pixel, as the service's own.

export const NONE = 255;
export const OTHER = "other";

// The form is described in wire.py.
export function unpack(buffer, withScores = false) {
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
    turning: plane(Float32Array),
    seenScore: withScores ? plane(Float32Array) : null,
    unseenScore: withScores ? plane(Float32Array) : null,
    seen: plane(Uint8Array),
    unseen: plane(Uint8Array),
    isUnseen: header.names.map((name) => header.unseen.includes(name)),
  };
}

// The names of labels; those below the least score have one of their own.
export function namesOf({ names }, minScore) {
  return minScore > 0 && !names.includes(OTHER) ? [...names, OTHER] : names;
}

// The nearest unseen class wins where the parameter is beyond the pixel's turning point, compared in float32 as the
// service does; a rule without a parameter is one that rises, at 0.
export function decide(ranking, parameter, value, minScore = 0) {
  const { turning, seen, unseen, seenScore, unseenScore } = ranking;
  const limit = Math.fround(parameter ? value : 0);
  const unseenWins = parameter?.rises ?? true ? (point) => point < limit : (point) => point > limit;
  const labels = new Uint8Array(seen.length);
  for (let i = 0; i < labels.length; i++) labels[i] = unseenWins(turning[i]) ? unseen[i] : seen[i];
  if (minScore > 0) {
    const other = namesOf(ranking, minScore).indexOf(OTHER);
    const least = Math.fround(minScore);
    for (let i = 0; i < labels.length; i++) {
      if ((unseenWins(turning[i]) ? unseenScore : seenScore)[i] < least) labels[i] = other;
    }
  }
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
