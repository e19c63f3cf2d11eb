import pg from 'pg'
import type { Engine } from './engine.ts'

/** Runs a statement as an operator would, on a connection of its own. */
export async function ask({ url }: Engine, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}
