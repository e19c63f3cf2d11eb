/** Pictures for the docs: made small without a change that a reader could see. */
import { crc32, deflateSync, inflateSync } from 'node:zlib'
import { expect, test } from 'vitest'

const { smallPng } = await import(new URL('../../scripts/small-png.mjs', import.meta.url).href)

const WIDTH = 4
const PIXEL = 3
const ROW = WIDTH * PIXEL

function chunk(type: string, body: Uint8Array): Buffer {
  const named = Buffer.concat([Buffer.from(type), body])
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
  length.writeUInt32BE(body.length)
  sum.writeUInt32BE(crc32(named))
  return Buffer.concat([length, named, sum])
}

function png(rows: Buffer, height: number): Buffer {
  const header = Buffer.from([0, 0, 0, WIDTH, 0, 0, 0, height, 8, 2, 0, 0, 0])
  const parts = [chunk('IHDR', header), chunk('IDAT', deflateSync(rows)), chunk('IEND', Buffer.alloc(0))]
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), ...parts])
}

/** Each row by another of the five filters of PNG. */
function filtered(pixels: Buffer, height: number): Buffer {
  const at = (x: number, y: number) => (x < 0 || y < 0 ? 0 : pixels[y * ROW + x]!)
  const rows = Array.from({ length: height }, (_, y) => {
    const row = Array.from({ length: ROW }, (_, x) => {
      const [left, up, corner] = [at(x - PIXEL, y), at(x, y - 1), x < PIXEL ? 0 : at(x - PIXEL, y - 1)]
      const guess = left + up - corner
      const near = [left, up, corner].reduce((best, one) => (Math.abs(guess - one) < Math.abs(guess - best) ? one : best))
      return (at(x, y) - [0, left, up, (left + up) >> 1, near][y % 5]!) & 255
    })
    return Buffer.from([y % 5, ...row])
  })
  return Buffer.concat(rows)
}

function body(file: Buffer, type: string): Buffer {
  const at = file.indexOf(type, 0, 'latin1')
  return file.subarray(at + 4, at + 4 + file.readUInt32BE(at - 4))
}

test('a picture of few colours stays the same, whichever filters its rows had', () => {
  const height = 10
  const pixels = Buffer.from(Array.from({ length: ROW * height }, (_, i) => (i * 89 + (i >> 3) * 31) % 256))
  const small = smallPng(png(filtered(pixels, height), height)) as Buffer
  const [palette, indices] = [body(small, 'PLTE'), inflateSync(body(small, 'IDAT'))]
  const shown = Array.from({ length: height }, (_, y) =>
    [...indices.subarray(y * (WIDTH + 1) + 1, (y + 1) * (WIDTH + 1))].flatMap(i => [...palette.subarray(i * 3, i * 3 + 3)]),
  )
  expect(Buffer.from(shown.flat())).toEqual(pixels)
})

test('a file that is no PNG, or a form that browsers do not write, is refused', () => {
  expect(() => smallPng(Buffer.from('GIF89a and more'))).toThrow('not a PNG file')
  const file = png(filtered(Buffer.alloc(ROW), 1), 1)
  file[24] = 16
  expect(() => smallPng(file)).toThrow('not known here')
})
