/**
 * The part of an address after `#` that holds a world: the scene, and if a person has changed something, the settings and acts, and the time.
 *
 * `scene=split-brain&t=12000&set=processes:3,ttl:6000&do=500acquire0,6000pause0:12000`
 */
import { MAX_ACTS } from './player.ts'
import { SCENES, type Scene, sceneNamed } from './scenes.ts'
import { ACTS, type Act, type ActName, INITIAL, SETTINGS, type SettingName, type Settings } from './settings.ts'

/** A link is played up to this time, ms. A world that is older has no link. */
export const MAX_LINKED = 600_000
const MAX_LENGTH = 8_000

export interface Linked {
  readonly scene: Scene
  /** Left out: those of the scene. */
  readonly changed?: { readonly settings: Partial<Settings>; readonly acts: readonly Act[] }
  readonly at: number
}

export type ReadLink = ({ readonly kind: 'read' } & Linked) | { readonly kind: 'damaged'; readonly sentence: string }

export function writeLink({ scene, changed, at }: Linked): string {
  const parts = [`scene=${scene.name}`]
  if (at > 0) parts.push(`t=${Math.round(at)}`)
  if (changed !== undefined) {
    const set = Object.entries(changed.settings).filter(([name, value]) => value !== INITIAL[name as SettingName])
    parts.push(`set=${set.map(([name, value]) => `${name}:${value}`).join(',')}`)
    parts.push(
      `do=${changed.acts.map(({ at, act, who, amount }) => `${at}${act}${who ?? ''}${amount === undefined ? '' : `:${amount}`}`).join(',')}`,
    )
  }
  return parts.join('&')
}

/** Reads a fragment, with or without `#`. An empty one is the first scene. */
export function readLink(fragment: string): ReadLink {
  const text = fragment.replace(/^#/, '')
  if (text === '') return { kind: 'read', scene: SCENES[0]!, at: 0 }
  const damaged = (what: string): ReadLink => ({
    kind: 'damaged',
    sentence: `The link is damaged: ${what}. Copy it again, or begin with a scene.`,
  })
  if (text.length > MAX_LENGTH) return damaged('it is too long')
  const parts = new Map<string, string>()
  for (const part of text.split('&')) {
    const [name = '', value, ...more] = part.split('=')
    if (!['scene', 't', 'set', 'do'].includes(name) || value === undefined || more.length > 0 || parts.has(name))
      return damaged(`“${shown(part)}” is not a part of it`)
    parts.set(name, value)
  }
  const scene = sceneNamed(parts.get('scene') ?? '')
  if (scene === undefined) return damaged(`there is no scene “${shown(parts.get('scene') ?? '')}”`)
  const at = Number(parts.get('t') ?? 0)
  if (!/^\d{1,6}$/.test(parts.get('t') ?? '0') || at > MAX_LINKED) return damaged('its time is not one of the first ten minutes')
  if (!parts.has('set') && !parts.has('do')) return { kind: 'read', scene, at }
  const settings = readSettings(parts.get('set') ?? '')
  if (typeof settings === 'string') return damaged(settings)
  const acts = readActs(parts.get('do') ?? '', { ...INITIAL, ...settings }.processes)
  if (typeof acts === 'string') return damaged(acts)
  return { kind: 'read', scene, changed: { settings, acts }, at }
}

function readSettings(text: string): Partial<Settings> | string {
  const settings: Partial<Record<SettingName, number>> = {}
  for (const part of text === '' ? [] : text.split(',')) {
    const [, name, given] = /^(\w+):(\d{1,6})$/.exec(part) ?? []
    if (name === undefined || !Object.hasOwn(SETTINGS, name)) return `“${shown(part)}” is no setting`
    const { low, high } = SETTINGS[name as SettingName]
    const value = Number(given)
    if (value < low || value > high) return `the setting ${name} must be from ${low} to ${high}`
    settings[name as SettingName] = value
  }
  return settings
}

function readActs(text: string, processes: number): readonly Act[] | string {
  const parts = text === '' ? [] : text.split(',')
  if (parts.length > MAX_ACTS) return `it has more than ${MAX_ACTS} acts`
  const acts: Act[] = []
  for (const part of parts) {
    const [, at, name, who, amount] = /^(\d{1,6})([a-zA-Z]+)(\d{1,2})?(?::(-?\d{1,7}))?$/.exec(part) ?? []
    if (name === undefined || !Object.hasOwn(ACTS, name)) return `“${shown(part)}” is no act`
    const kind: { readonly who: boolean; readonly amount?: readonly [number, number] } = ACTS[name as ActName]
    if (kind.who !== (who !== undefined) || (who !== undefined && Number(who) >= processes)) return `“${shown(part)}” names no process`
    const [low, high] = kind.amount ?? [0, -1]
    if (
      (kind.amount !== undefined) !== (amount !== undefined) ||
      (amount !== undefined && !(Number(amount) >= low && Number(amount) <= high))
    )
      return `the amount of “${shown(part)}” is not possible`
    acts.push({
      ...{ at: Number(at), act: name as ActName },
      ...(who !== undefined && { who: Number(who) }),
      ...(amount !== undefined && { amount: Number(amount) }),
    })
  }
  return acts
}

/** A part of a foreign text, short enough for a sentence. */
function shown(text: string): string {
  return text.length > 24 ? `${text.slice(0, 24)}…` : text
}
