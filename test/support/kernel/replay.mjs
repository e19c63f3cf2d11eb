// Applies a log with the compiled kernel and prints where that led: run by another version of Node than the one that wrote it.
// node test/support/kernel/replay.mjs DIST LOG   (LOG: each entry behind its length, four bytes)

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [dist, path] = process.argv.slice(2)
const kernel = name => import(pathToFileURL(join(dist, 'kernel', `${name}.js`)).href)
const [{ applyBatch, decodeBatch }, { createState }, { saveState, StateLoader, stateHash }] = await Promise.all(
  ['codec/batch', 'state', 'codec/snapshot'].map(kernel),
)

const log = readFileSync(path)
let state = createState()
const effects = { events: [], timer: () => undefined }
for (let at = 0; at < log.length; ) {
  const length = log.readUInt32BE(at)
  applyBatch(state, state.index + 1, decodeBatch(log.subarray(at + 4, at + 4 + length)), effects)
  effects.events.length = 0
  at += 4 + length
  if (state.index % 500 !== 0) continue
  const loader = new StateLoader()
  for (const chunk of saveState(state)) loader.add(chunk)
  state = loader.finish()
}
console.log(`${process.version} ${stateHash(state)} ${state.decisionHashA} ${state.decisionHashB}`)
