/** docs/architecture.md names files and folders of the source: each exists, and no folder is missing. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))
const map = readFileSync(join(root, 'docs/architecture.md'), 'utf8')

function named(text: string): string[] {
  return [...text.matchAll(/`(src\/[^`]*)`/g)].map(match => match[1]!)
}

function folders(parent = 'src'): string[] {
  const own = readdirSync(join(root, parent), { withFileTypes: true }).filter(entry => entry.isDirectory())
  return own.flatMap(({ name }) => [`${parent}/${name}/`, ...folders(`${parent}/${name}`)])
}

test('every file and folder that the map names exists', () => {
  expect(named(map).length).toBeGreaterThan(60)
  expect(named(map).filter(path => !existsSync(join(root, path)))).toEqual([])
})

test('every folder of the source is in its table', () => {
  const table = new Set(named(map.slice(map.indexOf('## The folders'))))
  expect(folders().filter(folder => !table.has(folder))).toEqual([])
})
