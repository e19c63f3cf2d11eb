/** The connection to a file while another process works on the same file. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { systemClock } from '../../../src/clock.ts'
import { FileDatabase } from '../../../src/store/file/database.ts'
import { type Database, type Engine, loadEngine, type Statement } from '../../../src/store/file/engine.ts'

const engine = await loadEngine()

// Each pragma is a place at which another process may create the tables.
test.each(['application_id', 'user_version', 'auto_vacuum'])(
  'a file that another process creates just before the store reads %s is recognized',
  async pragma => {
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-database-'))
    const path = join(folder, 'log.db')
    const database = (used: Engine) => new FileDatabase({ path, engine: used, clock: systemClock, timeout: 5000 })
    const other = database(engine)
    let creation: Promise<void> | undefined
    const ours = database(
      interrupted(`pragma ${pragma}`, () => {
        creation ??= other.recognize(0)
      }),
    )
    try {
      await ours.recognize(0)
      await creation
      expect(creation).toBeDefined()
      await ours.recognize(0)
    } finally {
      ours.close()
      other.close()
      rmSync(folder, { recursive: true })
    }
  },
)

/** An engine whose connections call `interrupt` before they prepare `sql`. */
function interrupted(sql: string, interrupt: () => void): Engine {
  class Interrupted extends engine.DatabaseSync implements Database {
    override prepare(text: string): Statement {
      if (text === sql) interrupt()
      return super.prepare(text)
    }
  }
  return { DatabaseSync: Interrupted }
}
