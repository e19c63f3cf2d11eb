/** Which coding agents there are: by their folder in the repository or in the home of the user, or by their program on the PATH. */
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import type { AgentHost } from './agent-hooks.ts'

const TRACES: Readonly<Record<AgentHost, { readonly folder: string; readonly program: string }>> = {
  claude: { folder: '.claude', program: 'claude' },
  codex: { folder: '.codex', program: 'codex' },
  cursor: { folder: '.cursor', program: 'cursor' },
  gemini: { folder: '.gemini', program: 'gemini' },
}

export function presentHosts(root: string, home: string, path: string): readonly AgentHost[] {
  return (Object.keys(TRACES) as AgentHost[]).filter(host => {
    const { folder, program } = TRACES[host]
    return existsSync(join(root, folder)) || existsSync(join(home, folder)) || isOnPath(program, path)
  })
}

export function isOnPath(program: string, path: string): boolean {
  return path.split(delimiter).some(folder => folder !== '' && existsSync(join(folder, program)))
}
