/** The entry of `leasehold mcp` in the configuration of a coding agent: JSON, or a block in TOML. */
import { withMember, withoutMember } from './json-text.ts'

export interface McpEntry {
  readonly command: string
  readonly args: readonly string[]
}

const PATH = ['mcpServers', 'leasehold'] as const
const BEGIN = '# >>> leasehold mcp\n'
/** After a text whose last line has no end: with the block, the line end that was added goes, too. */
const BEGIN_AFTER_GAP = '\n# >>> leasehold mcp, after a line without an end\n'
const END = '# <<< leasehold mcp\n'

export function withMcpEntry(format: 'json' | 'toml', text: string | undefined, { command, args }: McpEntry): string {
  if (format === 'json') return withMember(text === undefined || text.trim() === '' ? '{}\n' : text, PATH, { command, args })
  const clean = text === undefined ? '' : withoutBlock(text)
  if (/^\s*\[\s*mcp_servers\s*\.\s*"?leasehold"?\s*\]/m.test(clean))
    throw new Error('it has an entry mcp_servers.leasehold that init has not written')
  const begin = clean === '' || clean.endsWith('\n') ? BEGIN : BEGIN_AFTER_GAP
  const list = args.map(arg => JSON.stringify(arg)).join(', ')
  return `${clean}${begin}[mcp_servers.leasehold]\ncommand = ${JSON.stringify(command)}\nargs = [${list}]\n${END}`
}

/** The text without our entry. An entry of the same name that starts another program stays. */
export function withoutMcpEntry(format: 'json' | 'toml', text: string): string {
  if (text.trim() === '') return text
  return format === 'json' ? withoutMember(text, PATH, isOurs) : withoutBlock(text)
}

function isOurs(value: unknown): boolean {
  const { command, args } = (value ?? {}) as { readonly command?: unknown; readonly args?: unknown }
  return typeof command === 'string' && Array.isArray(args) && args.includes('mcp')
}

function withoutBlock(text: string): string {
  const afterGap = text.indexOf(BEGIN_AFTER_GAP)
  const begin = afterGap < 0 ? text.indexOf(BEGIN) : afterGap
  const end = begin < 0 ? -1 : text.indexOf(END, begin)
  return end < 0 ? text : text.slice(0, begin) + text.slice(end + END.length)
}
