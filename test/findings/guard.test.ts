/** Known findings: the guard for Postgres. */
import { expect } from 'vitest'
import { POSTGRES_FENCE, type PostgresClient, PostgresGuard } from '../../src/recipe/fence.ts'
import { knownFinding } from '../support/known-finding.ts'

/** As `Pool` of `pg`: each query may run on another connection, and `connect` checks one out. */
class Pool implements PostgresClient {
  /** Which connection ran what. */
  readonly ran: { readonly connection: number; readonly text: string }[] = []
  #next = 0

  query(text: string): Promise<{ rows: readonly unknown[] }> {
    return this.#run(this.#next++, text)
  }

  async connect(): Promise<PostgresClient & { release(): void }> {
    const connection = this.#next++
    return { query: text => this.#run(connection, text), release() {} }
  }

  async #run(connection: number, text: string): Promise<{ rows: readonly unknown[] }> {
    this.ran.push({ connection, text })
    return { rows: text === POSTGRES_FENCE ? [{ token: 1 }] : [] }
  }
}

knownFinding('guard-on-pool', 'a guard on a pool runs the fence and the work of one write on one connection', async claim => {
  const pool = new Pool()
  await new PostgresGuard(pool).write('reports', 1, client => client.query('update reports'))
  const texts = pool.ran.map(({ text }) => text)
  expect(texts).toContain(POSTGRES_FENCE)
  expect(texts).toContain('update reports')
  await claim(() => expect(new Set(pool.ran.map(({ connection }) => connection)).size).toBe(1))
})

knownFinding('guard-hides-error', 'a write whose rollback fails rejects with the error of the work', async claim => {
  const client: PostgresClient = {
    async query(text) {
      if (text === 'rollback') throw new Error('the connection is gone')
      return { rows: [{ token: 1 }] }
    },
  }
  const work = new Error('the work failed')
  const reason = await new PostgresGuard(client)
    .write('reports', 1, async () => {
      throw work
    })
    .catch((error: unknown) => error)
  expect(reason).toBeInstanceOf(Error)
  await claim(() => expect(reason).toBe(work))
})
