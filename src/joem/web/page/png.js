// Palette PNG files of labels, which a canvas can neither write nor read without turning labels into colours.

const SIGNATURE = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

export function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

export async function palettePng(labels, width, height, colours) {
  const rows = new Uint8Array((width + 1) * height); // each row starts with its filter: 0, none
  for (let y = 0; y < height; y++) rows.set(labels.subarray(y * width, (y + 1) * width), y * (width + 1) + 1);
  const header = new Uint8Array(13);
  const view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header.set([8, 3], 8); // eight bits, palette
  const parts = [
    SIGNATURE,
    chunk("IHDR", header),
    chunk("PLTE", Uint8Array.from(colours.flat())),
    chunk("IDAT", await through(new CompressionStream("deflate"), [rows])),
    chunk("IEND", new Uint8Array(0)),
  ];
  return new Blob(parts, { type: "image/png" });
}

// The labels of a file that the service wrote, whose rows have no filters.
export async function readLabels(buffer, width, height) {
  const view = new DataView(buffer);
  const parts = [];
  for (let at = SIGNATURE.length; at < buffer.byteLength; ) {
    const length = view.getUint32(at);
    const name = String.fromCharCode(...new Uint8Array(buffer, at + 4, 4));
    if (name === "IDAT") parts.push(new Uint8Array(buffer, at + 8, length));
    at += length + 12;
  }
  const rows = await through(new DecompressionStream("deflate"), parts);
  const labels = new Uint8Array(width * height);
  for (let y = 0; y < height; y++) {
    labels.set(rows.subarray(y * (width + 1) + 1, (y + 1) * (width + 1)), y * width);
  }
  return labels;
}

async function through(stream, parts) {
  return new Uint8Array(await new Response(new Blob(parts).stream().pipeThrough(stream)).arrayBuffer());
}

function chunk(name, content) {
  const bytes = new Uint8Array(content.length + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, content.length);
  bytes.set(new TextEncoder().encode(name), 4);
  bytes.set(content, 8);
  view.setUint32(bytes.length - 4, crc32(bytes.subarray(4, -4)));
  return bytes;
}
