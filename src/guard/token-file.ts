/**
 * The tokens that files of a worktree were last written under, in a file of its git folder. The claims themselves end with the agent's turn; a commit
 * comes later, and must still be able to show under which claim its paths were written.
 */
import { appendFileSync, existsSync, lstatSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const MAX_BYTES = 4 << 20

function pathIn(gitDir: string): string {
  return join(gitDir, 'leasehold-tokens')
}

/** Appends: hooks of several sub-agents may write at the same moment. */
export function recordTokens(gitDir: string, tokens: Readonly<Record<string, number>>): void {
  const lines = Object.entries(tokens).map(([resource, token]) => `${token} ${resource}\n`)
  if (lines.length > 0) appendFileSync(pathIn(gitDir), lines.join(''), { mode: 0o600 })
}

/** The last token of each resource. */
export function recordedTokens(gitDir: string): ReadonlyMap<string, number> {
  const path = pathIn(gitDir)
  const tokens = new Map<string, number>()
  if (!existsSync(path)) return tokens
  const { size } = lstatSync(path)
  const lines = size > 4 * MAX_BYTES ? [] : readFileSync(path, 'utf8').split('\n')
  for (const line of lines) {
    const [, token, resource] = /^(\d{1,16}) (.+)$/.exec(line) ?? []
    if (resource !== undefined) tokens.set(resource, Number(token))
  }
  // Written anew when most of its lines are old.
  if (size > MAX_BYTES) writeFileSync(path, [...tokens].map(([resource, token]) => `${token} ${resource}\n`).join(''), { mode: 0o600 })
  return tokens
}
