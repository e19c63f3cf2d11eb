/**
 * Commands that are suggested to be typed. One that leaves out the store that the caller named would act on the default file, so every
 * suggestion gets the `--store` and `--config` of the command that makes it. What comes from the environment is inherited.
 */
import { redactedUrl } from '../connect/url.ts'

let flags = ''

/** The flags that the command at hand was given. */
export function rememberFlags({ store, config }: { readonly store?: string | undefined; readonly config?: string | undefined }): void {
  flags = [
    ...(store === undefined ? [] : [`--store ${quoted(redactedUrl(store))}`]),
    ...(config === undefined ? [] : [`--config ${quoted(config)}`]),
  ].join(' ')
}

/** With the flags put after the words that name the command, unless a store is named there already. */
export function completed(text: string): string {
  if (flags === '') return text
  return text.replace(
    /\bleasehold ((?:key|policy) (?:create|ls|revoke|get|set|unset)|ls|show|history|explain|watch|revoke|break|backup|restore)\b(?![^.;)]*--store)/g,
    command => `${command} ${flags}`,
  )
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
}
