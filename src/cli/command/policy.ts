/** `leasehold policy`: rules for all names under a prefix. */
import type { Command } from 'commander'
import { parseDuration } from '../../duration.ts'
import type { PolicyRules } from '../../kernel/command.ts'
import { policyRules } from '../../kernel/command-table.ts'
import { normalPrefix } from '../../kernel/name.ts'
import { usageError } from '../exit.ts'
import { addGlobalOptions, invoke } from '../invocation.ts'
import { requireValidPrefix } from '../name.ts'
import { nearestOf } from '../parse-error.ts'
import { change } from './operate.ts'

const RULES = Object.keys(policyRules.fields)
const DURATIONS = Object.entries(policyRules.fields).flatMap(([name, { type }]) => (type.surface === 'duration' ? [name] : []))

export function policy(program: Command): void {
  const group = program.command('policy').summary('show or change the rules for names under a prefix (get, set, unset)')
  addGlobalOptions(group.command('get'))
    .summary('show the rules of a prefix, or of all prefixes')
    .argument('[prefix]', 'the prefix (default: all prefixes)')
    .action(async (prefix: string | undefined, _: unknown, self: Command) => {
      if (prefix !== undefined) requireValidPrefix(prefix)
      await invoke(self, async ({ read, out }) => {
        const { value } = await read({ kind: 'policies' })
        const found = value.filter(policy => prefix === undefined || policy.prefix === normalPrefix(prefix))
        if (out.json) {
          for (const policy of found) await out.data(policy)
          return
        }
        if (found.length === 0) return out.note(`no policy is set${prefix === undefined ? '' : ` for ${prefix}`}: the defaults apply`)
        await out.table(
          ['PREFIX', 'RULES'],
          found.map(({ prefix, rules }) => [prefix === '' ? '(everything)' : prefix, formatRules(rules)]),
        )
      })
    })
  addGlobalOptions(group.command('set'))
    .summary('add or change rules of a prefix')
    .description("Changes the named rules and keeps the others. 'rule=' removes a rule. Write durations as 30s, 5m or 1h.")
    .argument('<prefix>', "the prefix; '' for all names")
    .argument('<rules...>', 'for example: ttlMax=1h capacity=4 lockDelay=10s queue=fit')
    .action(async (prefix: string, words: string[], _: unknown, self: Command) => {
      const given = words.map(parse)
      await invoke(self, async invocation => {
        const { value } = await invocation.read({ kind: 'policies' })
        const before = value.find(policy => policy.prefix === normalPrefix(prefix))?.rules
        const pairs = new Map<string, unknown>(Object.entries(before ?? {}))
        for (const [name, rule] of given) rule === undefined ? pairs.delete(name) : pairs.set(name, rule)
        const rules = Object.fromEntries(pairs) as PolicyRules
        const { revision } = await change(invocation, { kind: 'policy', prefix, rules })
        if (invocation.out.json) await invocation.out.data({ prefix: normalPrefix(prefix), rules, revision })
        else invocation.out.note(`${prefix === '' ? 'everything' : prefix}: ${formatRules(rules)}`)
      })
    })
  addGlobalOptions(group.command('unset'))
    .summary('remove all rules of a prefix')
    .argument('<prefix>', "the prefix; '' for all names")
    .action(async (prefix: string, _: unknown, self: Command) => {
      await invoke(self, async invocation => {
        const { revision } = await change(invocation, { kind: 'policy', prefix })
        if (invocation.out.json) await invocation.out.data({ prefix: normalPrefix(prefix), revision })
        else invocation.out.note(`removed the rules of ${prefix === '' ? 'everything' : prefix}`)
      })
    })
}

function parse(word: string): readonly [name: string, value: unknown] {
  const at = word.indexOf('=')
  if (at < 1) throw usageError(`${word} is not a rule`, 'Write rule=value, for example ttlMax=1h.')
  const [name, text] = [word.slice(0, at), word.slice(at + 1)]
  if (!RULES.includes(name)) {
    const meant = RULES.find(rule => rule.toLowerCase() === name.toLowerCase().replaceAll(/[-_]/g, '')) ?? nearestOf(name, RULES)
    const hint = meant === undefined ? '' : `. Did you mean ${meant}?`
    throw usageError(
      `there is no rule ${name}${hint}`,
      meant === undefined ? `The rules are: ${RULES.join(', ')}.` : `Write: ${meant}=${text}`,
    )
  }
  if (text === '') return [name, undefined]
  if (DURATIONS.includes(name)) return [name, text === '0' ? 0 : parseDuration(text, name)]
  return [name, /^\d{1,15}$/.test(text) ? Number(text) : text]
}

export function formatRules(rules: PolicyRules): string {
  return Object.entries(rules)
    .map(([name, value]) => `${name}=${DURATIONS.includes(name) ? formatDuration(value as number) : value}`)
    .join(' ')
}

/** An exact duration in the form that `policy set` accepts. */
function formatDuration(ms: number): string {
  for (const [unit, size] of [
    ['d', 86_400_000],
    ['h', 3_600_000],
    ['m', 60_000],
    ['s', 1_000],
  ] as const)
    if (ms >= size && ms % size === 0) return `${ms / size}${unit}`
  return `${ms}ms`
}
