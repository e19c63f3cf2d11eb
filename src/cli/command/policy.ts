import type { Command } from 'commander'
import { parseDuration } from '../../duration.ts'
import type { PolicyRules } from '../../kernel/command.ts'
import { normalPrefix } from '../../kernel/name.ts'
import { usage } from '../exit.ts'
import { common, invoke } from '../invocation.ts'
import { mustPrefix } from '../name.ts'
import { change } from './operate.ts'

const DURATIONS: readonly string[] = [
  ...['ttlMin', 'ttlMax', 'lockDelay', 'grace', 'maxLife', 'maxHold', 'aging'],
  ...['flapHalfLife', 'preserveMost'],
]

export function policy(program: Command): void {
  const group = program.command('policy').summary('rules for all names under a prefix: get, set, unset')
  common(group.command('get'))
    .summary('the rules of a prefix, or of all')
    .argument('[prefix]', 'left out: all of them')
    .action(async (prefix: string | undefined, _: unknown, self: Command) => {
      if (prefix !== undefined) mustPrefix(prefix)
      await invoke(self, async ({ read, out }) => {
        const { value } = await read({ kind: 'policies' })
        const found = value.filter(policy => prefix === undefined || policy.prefix === normalPrefix(prefix))
        if (out.json) {
          for (const policy of found) await out.data(policy)
          return
        }
        if (found.length === 0) return out.note(`there is no policy${prefix === undefined ? '' : ` for ${prefix}`}: the defaults hold`)
        await out.table(
          ['PREFIX', 'RULES'],
          found.map(({ prefix, rules }) => [prefix === '' ? '(everything)' : prefix, inPairs(rules)]),
        )
      })
    })
  common(group.command('set'))
    .summary('add or change rules of a prefix')
    .description("Rules that are not named stay as they are; 'rule=' takes one away. Durations are written 30s, 5m, 1h.")
    .argument('<prefix>', "'' is everything")
    .argument('<rules...>', 'such as ttlMax=1h capacity=4 lockDelay=10s queue=fit')
    .action(async (prefix: string, words: string[], _: unknown, self: Command) => {
      const given = words.map(parse)
      await invoke(self, async here => {
        const { value } = await here.read({ kind: 'policies' })
        const before = value.find(policy => policy.prefix === normalPrefix(prefix))?.rules
        const pairs = new Map<string, unknown>(Object.entries(before ?? {}))
        for (const [name, rule] of given) rule === undefined ? pairs.delete(name) : pairs.set(name, rule)
        const rules = Object.fromEntries(pairs) as PolicyRules
        const { revision } = await change(here, { kind: 'policy', prefix, rules })
        if (here.out.json) await here.out.data({ prefix: normalPrefix(prefix), rules, revision })
        else here.out.note(`${prefix === '' ? 'everything' : prefix}: ${inPairs(rules)}`)
      })
    })
  common(group.command('unset'))
    .summary('take away all rules of a prefix')
    .argument('<prefix>', "'' is everything")
    .action(async (prefix: string, _: unknown, self: Command) => {
      await invoke(self, async here => {
        const { revision } = await change(here, { kind: 'policy', prefix })
        if (here.out.json) await here.out.data({ prefix: normalPrefix(prefix), revision })
        else here.out.note(`${prefix === '' ? 'everything' : prefix} has no rules of its own any more`)
      })
    })
}

function parse(word: string): readonly [name: string, value: unknown] {
  const at = word.indexOf('=')
  if (at < 1) throw usage(`${word} is no rule`, 'Write it as rule=value, such as ttlMax=1h.')
  const [name, text] = [word.slice(0, at), word.slice(at + 1)]
  if (text === '') return [name, undefined]
  if (DURATIONS.includes(name)) return [name, text === '0' ? 0 : parseDuration(text, name)]
  return [name, /^\d{1,15}$/.test(text) ? Number(text) : text]
}

export function inPairs(rules: PolicyRules): string {
  return Object.entries(rules)
    .map(([name, value]) => `${name}=${DURATIONS.includes(name) ? typed(value as number) : value}`)
    .join(' ')
}

/** As one would type it, and exact: what is shown can be set again. */
function typed(ms: number): string {
  for (const [unit, size] of [
    ['d', 86_400_000],
    ['h', 3_600_000],
    ['m', 60_000],
    ['s', 1_000],
  ] as const)
    if (ms >= size && ms % size === 0) return `${ms / size}${unit}`
  return `${ms}ms`
}
