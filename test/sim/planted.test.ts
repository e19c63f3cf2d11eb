/** The planted mistakes: each replaces a text that occurs exactly once in the built code. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { BUGS } from '../../sim/planted.ts'

const built = fileURLToPath(new URL('../../.sim', import.meta.url))

test('the text that a planted mistake replaces occurs exactly once', () => {
  const misplaced = BUGS.filter(({ file, find }) => readFileSync(`${built}/${file}`, 'utf8').split(find).length !== 2)
  expect(misplaced.map(({ file, name, find }) => ({ file, name, find }))).toEqual([])
})
