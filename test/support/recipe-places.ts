import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { Leases } from '../../src/leases.ts'

export interface Place {
  /** Leases of one more process, as it were. */
  open(holder: string): Promise<Leases>
}

let places = 0

/** Every recipe does the same over every store. */
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
