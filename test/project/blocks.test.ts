/**
 * Every block of code in the pages names its language, and has no mistake of syntax. Blocks in `ts` also run (snippets.test.ts); those that need an engine, or code
 * of the reader, are marked `typescript`.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseAst } from 'rolldown/parseAst'
import { describe, expect, test } from 'vitest'
import { describeWith, programs } from '../support/engine.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const pages = [
  ...['README.md', 'CONTRIBUTING.md', 'SECURITY.md'],
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' }).map(path => join('docs', path)),
].filter(path => path.endsWith('.md'))

interface Block {
  readonly place: string
  readonly language: string
  readonly code: string
}

const blocks = pages.flatMap((page): Block[] => {
  const text = readFileSync(join(root, page), 'utf8')
  return [...text.matchAll(/^( *)```([^\n]*)\n(.*?)^\1```$/gms)].map(({ 1: indent, 2: language, 3: code, index }) => ({
    place: `${page}:${text.slice(0, index).split('\n').length}`,
    language: language!,
    code: code!.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  }))
})

function of(language: string): Block[] {
  return blocks.filter(block => block.language === language)
}

/** What `check` complains about, with the place of each. */
function complaints(language: string, check: (code: string) => string): string[] {
  return of(language).flatMap(({ place, code }) => {
    const complaint = check(code)
    return complaint === '' ? [] : [`${place}: ${complaint}`]
  })
}

describe('the blocks of code in the pages', () => {
  test('name their language', () => {
    const known = ['sh', 'text', 'ts', 'typescript', 'js', 'json', 'python', 'yaml', 'sql', 'ini', 'console', 'mermaid']
    expect(blocks.filter(({ language }) => !known.includes(language)).map(({ place, language }) => `${place}: ${language}`)).toEqual([])
  })

  test('in shell can be parsed', () => {
    expect(of('sh').length).toBeGreaterThan(80)
    expect(complaints('sh', code => spawnSync('bash', ['-n'], { input: code, encoding: 'utf8' }).stderr)).toEqual([])
  })

  test('in JSON are JSON', () => {
    expect(of('json').length).toBeGreaterThan(3)
    const check = (code: string) => {
      try {
        JSON.parse(code)
        return ''
      } catch (error) {
        return String(error)
      }
    }
    expect(complaints('json', check)).toEqual([])
  })

  describeWith([programs.python3], 'with Python', () => {
    test('in Python can be parsed', () => {
      expect(of('python').length).toBeGreaterThan(5)
      // All in one process: an interpreter takes longer to start than to parse.
      const program =
        'import ast, json, sys\nfor place, code in json.load(sys.stdin):\n  try: ast.parse(code)\n  except SyntaxError as error: print(place, error)'
      const input = JSON.stringify(of('python').map(({ place, code }) => [place, code]))
      expect(execFileSync('python3', ['-c', program], { input, encoding: 'utf8' })).toBe('')
    })
  })

  test.each(['js', 'ts', 'typescript'] as const)('in %s can be parsed', language => {
    const check = (code: string) => {
      try {
        parseAst(code, { lang: 'ts' })
        return ''
      } catch (error) {
        return String(error)
      }
    }
    expect(check('const = 3')).toContain('Error')
    expect(of(language).length).toBeGreaterThan(3)
    expect(complaints(language, check)).toEqual([])
  })
})
