// Labels as a palette PNG, which a canvas cannot write.

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

export async function palettePng(labels, width, height, colours) {
  const rows = new Uint8Array((width + 1) * height); // each row starts with its filter: 0, none
  for (let y = 0; y < height; y++) rows.set(labels.subarray(y * width, (y + 1) * width), y * (width + 1) + 1);
  const deflated = new Response(new Blob([rows]).stream().pipeThrough(new CompressionStream("deflate")));
  const header = new Uint8Array(13);
  const view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header.set([8, 3], 8); // eight bits, palette
  const parts = [
    Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a),
    chunk("IHDR", header),
    chunk("PLTE", Uint8Array.from(colours.flat())),
    chunk("IDAT", new Uint8Array(await deflated.arrayBuffer())),
    chunk("IEND", new Uint8Array(0)),
  ];
  return new Blob(parts, { type: "image/png" });
}

function chunk(name, content) {
  const bytes = new Uint8Array(content.length + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, content.length);
  bytes.set(new TextEncoder().encode(name), 4);
  bytes.set(content, 8);
  let crc = 0xffffffff;
  for (const byte of bytes.subarray(4, -4)) crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  view.setUint32(bytes.length - 4, ~crc);
  return bytes;
}
