/**
 * Which resource a name of a face stands for. Without a map it is the resource of the same name (`redis/KEY`); with one, clients of several protocols and of
 * Leasehold name the same thing: `redis/jobs=jobs` makes the key `jobs/nightly` of Redis the resource `jobs/nightly`.
 *
 * Only what is held is mapped. Entries of a face, such as the value of a Redis key or an object of Kubernetes, stay under the prefix of the face.
 */
import { LeaseError } from '../errors.ts'
import { whyBadName, whyBadPrefix } from '../wording.ts'
import { FACE_NAMES, type FaceNames } from './face.ts'

/** Rules in a map. */
const MAX_RULES = 256

interface MapRule {
  /** Without a trailing slash, as is `to`. */
  readonly from: string
  readonly to: string
}

export class ResourceNames implements FaceNames {
  /** The longest first: it decides. */
  readonly #rules: readonly MapRule[]

  /** From names or prefixes of faces, by whole segments, to those of resources. A slash at the end changes nothing; an empty target stands for no prefix. Throws `INVALID`. */
  constructor(map: Readonly<Record<string, string>> = {}) {
    const rules = Object.entries(map).map(([from, to]) => ruleOf(from, to))
    if (rules.length > MAX_RULES) throw new LeaseError('INVALID', `a map of names has at most ${MAX_RULES} rules`)
    this.#rules = rules.sort((a, b) => b.from.length - a.from.length)
  }

  resource(name: string): string {
    for (const { from, to } of this.#rules) {
      if (name === from) return to === '' ? name : to
      if (name.startsWith(from) && name[from.length] === '/') return to === '' ? name.slice(from.length + 1) : to + name.slice(from.length)
    }
    return name
  }

  under(prefix: string): readonly string[] {
    const inner = this.#rules.filter(({ from }) => from.startsWith(`${prefix}/`))
    return [...new Set([prefix, ...inner.map(({ from }) => from)].map(name => this.resource(name)))]
  }
}

function ruleOf(given: string, target: string): MapRule {
  const [from, to] = [given.replace(/\/$/, ''), target.replace(/\/$/, '')]
  const rule = `"${given.slice(0, 64)}=${target.slice(0, 64)}"`
  const face = from.split('/')[0]!
  if (!(FACE_NAMES as readonly string[]).includes(face) || whyBadName(from) !== undefined)
    throw new LeaseError('INVALID', `${rule} maps no name of a face: it begins with ${FACE_NAMES.join('/, ')}/`)
  const bad = whyBadPrefix(to)
  if (bad !== undefined) throw new LeaseError('INVALID', `${rule} maps to no name of a resource: it ${bad}`)
  return { from, to }
}

/** Reads `redis/jobs=jobs`, several separated by commas. Throws `INVALID`. */
export function parseNameMap(texts: readonly string[]): Readonly<Record<string, string>> {
  const map: Record<string, string> = Object.create(null)
  for (const text of texts.flatMap(each => each.split(',')).filter(each => each !== '')) {
    const at = text.indexOf('=')
    if (at < 1) throw new LeaseError('INVALID', `"${text.slice(0, 64)}" is no rule of a map: write NAME=RESOURCE, as in redis/jobs=jobs`)
    map[text.slice(0, at)] = text.slice(at + 1)
  }
  return map
}
