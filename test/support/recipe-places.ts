/** Runs the tests of a recipe over the memory store and over the file store. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { Leases } from '../../src/leases.ts'

export interface Place {
  /** Leases as of one more process. */
  open(holder: string): Promise<Leases>
}

let places = 0

/** Defines a test that must hold over every store. */
export function everywhere(name: string, run: (place: Place) => Promise<void>): void {
  describe(name, () => {
    test('memory:', () => {
      const url = `memory:place-${places++}`
      return run({ open: holder => connect(url, { holder }) })
    })
    test('file:', async () => {
      const folder = mkdtempSync(join(tmpdir(), 'leasehold-recipe-'))
      try {
        await run({ open: holder => connect(`file:${join(folder, 'leases.db')}`, { holder }) })
      } finally {
        rmSync(folder, { recursive: true, force: true })
      }
    })
  })
}
