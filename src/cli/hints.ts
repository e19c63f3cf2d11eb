/**
 * Adds `--store` and `--config` to the commands that messages suggest. Without them, a suggested command would act on the default file instead of
 * the store that the caller named. Settings from the environment need no flag: the next command inherits them.
 */
import { redactedUrl } from '../connect/url.ts'

let flags = ''
let running = ''

/** Remembers the flags of the command that is running. */
export function rememberFlags({ store, config }: { readonly store?: string | undefined; readonly config?: string | undefined }): void {
  flags = [
    ...(store === undefined ? [] : [`--store ${shellWord(redactedUrl(store))}`]),
    ...(config === undefined ? [] : [`--config ${shellWord(config)}`]),
  ].join(' ')
}

/** Remembers which command is running, for messages that point to its help. */
export function rememberCommand(words: readonly string[]): void {
  running = words.join(' ')
}

/** The command whose help fits: `leasehold help run`. */
export function helpCommand(): string {
  return `leasehold help ${running}`.trim()
}

/** The command that lists what the running one could have named. */
export function listCommand(): string {
  const [group = ''] = running.split(' ')
  const lists: Readonly<Record<string, string>> = {
    policy: 'To see the policies, run: leasehold policy get',
    key: 'To see the keys, run: leasehold key ls',
    pool: 'To see the pools, run: leasehold pool ls',
  }
  return lists[group] ?? 'To see the present leases, run: leasehold ls'
}

/** Puts the flags after the words that name the command, unless the suggestion names a store itself. */
export function withStoreFlags(text: string): string {
  if (flags === '') return text
  return text.replace(
    /\bleasehold ((?:key|policy) (?:create|ls|revoke|get|set|unset)|pool (?:offer|ls|queue|take|return|usage)|ls|show|history|explain|watch|revoke|break|backup|restore)\b(?![^.;)]*--store)/g,
    command => `${command} ${flags}`,
  )
}

/** A word as a shell needs it. */
export function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
}
