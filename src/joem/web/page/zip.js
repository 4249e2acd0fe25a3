// A zip file without compression: what goes into it is compressed already.

import { crc32 } from "./png.js";

const STORED = [20, 0x0800]; // version 2.0, names in UTF-8

// `files` are pairs of a path and a Blob.
export async function zip(files) {
  const parts = [];
  const entries = [];
  let offset = 0;
  for (const [path, blob] of files) {
    const name = new TextEncoder().encode(path);
    const crc = crc32(new Uint8Array(await blob.arrayBuffer()));
    const common = [...STORED, 0, 0, 0x21, [crc], [blob.size], [blob.size], name.length, 0]; // 1 January 1980
    parts.push(record(0x04034b50, common), name, blob);
    entries.push(record(0x02014b50, [20, ...common, 0, 0, 0, [0], [offset]]), name);
    offset += 30 + name.length + blob.size;
  }
  const size = entries.reduce((sum, part) => sum + part.length, 0);
  const end = record(0x06054b50, [0, 0, files.length, files.length, [size], [offset], 0]);
  return new Blob([...parts, ...entries, end], { type: "application/zip" });
}

// Little-endian numbers of two bytes, or of four where they are in brackets.
function record(signature, values) {
  const all = [[signature], ...values];
  const bytes = new Uint8Array(all.reduce((sum, value) => sum + (Array.isArray(value) ? 4 : 2), 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const value of all) {
    if (Array.isArray(value)) view.setUint32(at, value[0], true);
    else view.setUint16(at, value, true);
    at += Array.isArray(value) ? 4 : 2;
  }
  return bytes;
}
