/** Events of hosts, as their documentation and schemas show them (test/guard/recorded), with ROOT for the folder of the repository. */
import { readFileSync } from 'node:fs'
import { type HookEvent, type HookHost, readHookEvent } from '../../src/guard/hook-event.ts'

export function rawEvent(name: string, root: string): Record<string, unknown> {
  const text = readFileSync(new URL(`../guard/recorded/${name}.json`, import.meta.url), 'utf8')
  return JSON.parse(text.replaceAll('ROOT', root)) as Record<string, unknown>
}

export function hookEvent(name: string, root: string): HookEvent {
  return readHookEvent(name.split('-')[0] as HookHost, rawEvent(name, root))
}
