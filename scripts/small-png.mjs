// Makes a screenshot small: a browser writes PNG files quickly, and large. The picture gets a palette of its 256 most frequent colours, which for a page of
// text and flat areas is all of them but some shades at the edges of letters; those become the nearest colour of the palette.

import { crc32, deflateSync, inflateSync } from 'node:zlib'

const SIGNATURE = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')
/** Bytes of a pixel by the type of colour in the header, with 8 bits each: RGB and RGBA. */
const PIXEL_BYTES = { 2: 3, 6: 4 }

const MAX_COLOURS = 256

/** The picture in fewer bytes. Throws for a form of PNG that browsers do not write. */
export function smallPng(file) {
  const { header: given, data } = chunksOf(file)
  const header = Buffer.from(given)
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)]
  const [depth, colour, , , interlaced] = header.subarray(8)
  const pixel = PIXEL_BYTES[colour]
  if (depth !== 8 || pixel === undefined || interlaced !== 0) throw new Error('this form of PNG is not known here')
  const rows = unfiltered(inflateSync(data), { row: width * pixel, height, pixel })
  const { palette, indices } = indexed(rows, { width, height, pixel })
  header[9] = 3 // colours by number
  const packed = deflateSync(indices, { level: 9, memLevel: 9 })
  const chunks = [chunk('IHDR', header), chunk('PLTE', palette), chunk('IDAT', packed), chunk('IEND', Buffer.alloc(0))]
  return Buffer.concat([SIGNATURE, ...chunks])
}

/** A palette, and for each row of pixels a 0 and their numbers in it. */
function indexed(rows, { width, height, pixel }) {
  const places = width * height
  const colours = new Uint32Array(places)
  const counts = new Map()
  for (let i = 0; i < places; i++) {
    const at = Math.floor(i / width) * (width * pixel + 1) + 1 + (i % width) * pixel
    const colour = (rows[at] << 16) | (rows[at + 1] << 8) | rows[at + 2]
    colours[i] = colour
    counts.set(colour, (counts.get(colour) ?? 0) + 1)
  }
  const kept = [...counts]
    .sort(([, a], [, b]) => b - a)
    .slice(0, MAX_COLOURS)
    .map(([colour]) => colour)
  const numbers = new Map(kept.map((colour, i) => [colour, i]))
  for (const colour of counts.keys()) if (!numbers.has(colour)) numbers.set(colour, nearest(kept, colour))
  const indices = Buffer.alloc((width + 1) * height)
  for (let i = 0; i < places; i++) indices[Math.floor(i / width) * (width + 1) + 1 + (i % width)] = numbers.get(colours[i])
  return { palette: Buffer.from(kept.flatMap(parts)), indices }
}

function parts(colour) {
  return [colour >> 16, (colour >> 8) & 255, colour & 255]
}

function nearest(kept, colour) {
  const wanted = parts(colour)
  const distance = other => parts(other).reduce((sum, part, i) => sum + (part - wanted[i]) ** 2, 0)
  let best = 0
  for (let i = 1; i < kept.length; i++) if (distance(kept[i]) < distance(kept[best])) best = i
  return best
}

function chunksOf(file) {
  if (!file.subarray(0, 8).equals(SIGNATURE)) throw new Error('this is not a PNG file')
  const parts = []
  let header
  for (let at = 8; at < file.length; ) {
    const length = file.readUInt32BE(at)
    const type = file.toString('latin1', at + 4, at + 8)
    const body = file.subarray(at + 8, at + 8 + length)
    if (type === 'IHDR') header = body
    if (type === 'IDAT') parts.push(body)
    at += length + 12
  }
  return { header, data: Buffer.concat(parts) }
}

/** Rows of pixels as they are, each after a 0. */
function unfiltered(data, { row, height, pixel }) {
  const plain = Buffer.alloc((row + 1) * height)
  for (let y = 0; y < height; y++) {
    const from = y * (row + 1)
    const filter = data[from]
    for (let x = 1; x <= row; x++) {
      const left = x > pixel ? plain[from + x - pixel] : 0
      const up = y > 0 ? plain[from + x - row - 1] : 0
      const corner = x > pixel && y > 0 ? plain[from + x - row - 1 - pixel] : 0
      plain[from + x] = data[from + x] + [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter]
    }
  }
  return plain
}

function paeth(left, up, corner) {
  const guess = left + up - corner
  const [toLeft, toUp, toCorner] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)]
  return toLeft <= toUp && toLeft <= toCorner ? left : toUp <= toCorner ? up : corner
}

function chunk(type, body) {
  const named = Buffer.concat([Buffer.from(type, 'latin1'), body])
  const framed = Buffer.alloc(named.length + 8)
  framed.writeUInt32BE(body.length, 0)
  named.copy(framed, 4)
  framed.writeUInt32BE(crc32(named), named.length + 4)
  return framed
}
