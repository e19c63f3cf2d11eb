// A second process with a guard on a file: runs calls that it gets over IPC, on the built library. `node test/support/fence-child.mjs PATH`
import { appendFileSync } from 'node:fs'
import { FileGuard } from '../../dist/recipe/fence/fence.js'

const guard = new FileGuard(process.argv[2])

const calls = {
  admit: (resource, token) =>
    guard.admit(resource, token).then(
      () => 'admitted',
      error => error.code,
    ),
  /** Tries tokens from a range that all processes share, and returns the admitted ones. */
  async race(resource, file, count) {
    const admitted = []
    for (let token = 1; token <= count; token++) {
      const mine = token * 10 + (process.pid % 10)
      const answer = await calls.admit(resource, mine)
      if (answer !== 'admitted') continue
      appendFileSync(file, `${mine}\n`)
      admitted.push(mine)
    }
    return admitted
  },
  /** Goes on for ever, and reports each admitted token. */
  async pour(resource, first) {
    for (let token = first; ; token++) {
      await guard.admit(resource, token)
      process.send({ token })
    }
  },
}

process.on('message', async ([call, ...args]) => process.send({ answer: await calls[call](...args) }))
