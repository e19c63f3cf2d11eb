/**
 * Reads the public declarations of the source: the entries of the package, what each exports, and the text of every declaration. The compiler writes them
 * afresh, because those in dist/ are as old as the last build.
 *
 * TypeScript 7 has no compiler API to ask, so this reads the text. It knows the forms that the compiler writes, and fails on a form that it does not know.
 * A file is named by its path from the folder of the build.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const BUILD = './dist/'

/** The declarations of src/. Types are not checked, which takes five times as long and is what `npm run types` does. */
const emitted: ReadonlyMap<string, string> = emit()

function emit(): Map<string, string> {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-declarations-'))
  try {
    const compiler = join(root, 'node_modules/typescript/bin/tsc')
    const args = ['-p', 'tsconfig.build.json', '--emitDeclarationOnly', '--noCheck', '--outDir', folder]
    const { status, stdout, stderr } = spawnSync(process.execPath, [compiler, ...args], { cwd: root, encoding: 'utf8' })
    if (status !== 0) throw new Error(`the compiler wrote no declarations:\n${stdout}${stderr}`)
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(path => path.endsWith('.d.ts'))
    return new Map(files.map(path => [path, readFileSync(join(folder, path), 'utf8')]))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

interface Manifest {
  readonly exports: Record<string, string | { readonly types: string }>
}

/** The declaration file of each entry of the package; a pattern stands for each file that it matches. */
export function declarationsOfEntries(): Map<string, string> {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Manifest
  const entries = new Map<string, string>()
  for (const [entry, target] of Object.entries(manifest.exports)) {
    if (typeof target === 'string') continue
    const [before, after] = target.types.slice(BUILD.length).split('*') as [string, string?]
    if (after === undefined) entries.set(entry, before)
    else
      for (const file of emitted.keys()) {
        const name = file.startsWith(before) && file.endsWith(after) ? file.slice(before.length, -after.length) : ''
        if (/^[^/]+$/.test(name)) entries.set(entry.replace('*', name), file)
      }
  }
  return entries
}

interface Declarations {
  /** Each declared name and the text of its declaration, all overloads and merged parts together. */
  readonly own: Map<string, { text: string; value: boolean }>
  readonly imported: Map<string, { readonly file: string; readonly name: string }>
  readonly exported: Map<string, { readonly file: string; readonly name: string }>
  /** Files whose exports are exported as well. */
  readonly stars: string[]
}

const parsed = new Map<string, Declarations>()

function declarationsIn(file: string): Declarations {
  const known = parsed.get(file)
  if (known !== undefined) return known
  const found: Declarations = { own: new Map(), imported: new Map(), exported: new Map(), stars: [] }
  parsed.set(file, found)
  const text = emitted.get(file)
  if (text === undefined) throw new Error(`no source is compiled to ${file}`)
  const source = withoutComments(text)
  for (const statement of statements(source)) read(statement, file, found)
  return found
}

function read(statement: string, file: string, found: Declarations): void {
  const from = /\bfrom\s*['"]([^'"]+)['"]\s*$/.exec(statement)?.[1]
  const target = from?.startsWith('.') ? join(dirname(file), from.replace(/\.(js|ts)$/, '.d.ts')) : undefined
  const listed = /^(import|export)\s+(?:type\s+)?(?:\w+\s*,\s*)?\{([^}]*)\}/s.exec(statement)
  if (listed !== null) {
    for (const item of listed[2]!.split(',').filter(text => text.trim() !== '')) {
      const [, name, as] = /^\s*(?:type\s+)?([\w$]+)(?:\s+as\s+([\w$]+))?\s*$/.exec(item)!
      if (listed[1] === 'export') found.exported.set(as ?? name!, { file: target ?? (from === undefined ? file : ''), name: name! })
      else if (target !== undefined) found.imported.set(as ?? name!, { file: target, name: name! })
    }
    return
  }
  if (/^import\b/.test(statement)) return
  if (/^export\s+(?:type\s+)?\*/.test(statement)) {
    if (target !== undefined) found.stars.push(target)
    return
  }
  const declared = /^(export\s+)?(?:declare\s+)?(?:abstract\s+)?(class|interface|type|function|const|let|enum)\s+([\w$]+)/.exec(statement)
  if (declared === null) throw new Error(`${file} has a form that this test does not know: ${statement.slice(0, 100)}`)
  const [, isExported, form, name] = declared as unknown as [string, string | undefined, string, string]
  const before = found.own.get(name)
  const value = form !== 'interface' && form !== 'type'
  found.own.set(name, { text: `${before?.text ?? ''}\n${statement}`, value: value || before?.value === true })
  if (isExported !== undefined) found.exported.set(name, { file, name })
}

/** Statements of the top level: a declaration file has no strings with braces, and types nest in brackets of four kinds. */
function statements(source: string): string[] {
  const all: string[] = []
  let depth = 0
  let start = 0
  for (let i = 0; i < source.length; i++) {
    const char = source[i]!
    if ('{(['.includes(char)) depth++
    if ('})]'.includes(char)) depth--
    const ends =
      depth === 0 &&
      (char === ';' || (char === '}' && /^\s*(export\s+)?(declare\s+)?(abstract\s+)?(class|interface)\b/.test(source.slice(start, i))))
    if (!ends) continue
    all.push(source.slice(start, i + (char === '}' ? 1 : 0)).trim())
    start = i + 1
  }
  return [...all, source.slice(start).trim()].filter(text => text !== '' && text !== 'export {}')
}

function withoutComments(source: string): string {
  return source.replace(/\/\*.*?\*\//gs, '').replace(/^\s*\/\/.*$/gm, '')
}

/** Public names of a file, each with where it is declared. */
export function exportsOf(file: string): Map<string, string> {
  const { exported, stars } = declarationsIn(file)
  const all = new Map<string, string>()
  for (const star of stars) for (const [name, at] of exportsOf(star)) all.set(name, at)
  for (const [name, { file: from, name: original }] of exported) if (from !== '') all.set(name, declarationOf(from, original))
  return all
}

/** `FILE#NAME` of the declaration that a name in a file stands for. */
function declarationOf(file: string, name: string): string {
  const { own, imported, exported, stars } = declarationsIn(file)
  if (own.has(name)) return `${file}#${name}`
  const next = imported.get(name) ?? exported.get(name)
  if (next !== undefined) return declarationOf(next.file, next.name)
  for (const star of stars) if (exportsOf(star).has(name)) return declarationOf(star, name)
  throw new Error(`${name} of ${file} is declared nowhere`)
}

export function split(at: string): { readonly file: string; readonly name: string } {
  const [path, name] = at.split('#') as [string, string]
  return { file: path, name }
}

export function isValue(at: string): boolean {
  const { file, name } = split(at)
  return declarationsIn(file).own.get(name)!.value
}

/** Returns what the declaration names of our own types: of its file, imported, or by `import("./file").Name`. */
export function namesIn(at: string): Set<string> {
  const { file, name } = split(at)
  const { own, imported } = declarationsIn(file)
  const text = own.get(name)!.text.replace(/'[^']*'|"(?!\.)[^"]*"/g, "''")
  const found = new Set<string>()
  for (const [, path, foreign] of text.matchAll(/import\("(\.[^"]+)"\)\.([\w$]+)/g))
    found.add(declarationOf(join(dirname(file), path!.replace(/\.(js|ts)$/, '.d.ts')), foreign!))
  // Not a member or a parameter of that name: those are followed by a colon, or stand behind a dot.
  for (const [, word] of text.matchAll(/(?<![\w$.#])([A-Za-z_$][\w$]*)(?!\s*\??:|[\w$])/g))
    if (word !== name && (own.has(word!) || imported.has(word!))) found.add(declarationOf(file, word!))
  return found
}

/** The text of a declaration, without comments and private fields. */
export function textOf(at: string): string {
  const { file, name } = split(at)
  return declarationsIn(file)
    .own.get(name)!
    .text.split('\n')
    .filter(line => line.trim() !== '' && !/^\s*(#private;|private )/.test(line))
    .join('\n')
}
