/** Label and field selectors of lists and watches. Of a Lease, fields are its name and its namespace, as in Kubernetes. */
import type { KubeLease } from './lease-object.ts'
import { badRequest } from './status.ts'

export interface LeaseSelector {
  matches(lease: KubeLease): boolean
  /** A write can change whether an object matches: labels change, names do not. */
  readonly varies: boolean
}

type Test = (lease: KubeLease) => boolean

const MAX_SELECTOR = 4_096
const SET = /^([^\s!=,()]+)\s+(in|notin)\s+\(([^()]*)\)$/

export function parseSelector(labels: string, fields: string): LeaseSelector {
  if (labels.length > MAX_SELECTOR || fields.length > MAX_SELECTOR) throw badRequest(`a selector has more than ${MAX_SELECTOR} characters`)
  const byLabel = split(labels).map(labelTest)
  const byField = split(fields).map(fieldTest)
  return { matches: lease => byField.every(test => test(lease)) && byLabel.every(test => test(lease)), varies: byLabel.length > 0 }
}

/** The requirements of a selector: separated by commas, but not within parentheses. */
function split(text: string): readonly string[] {
  const parts: string[] = []
  let depth = 0
  let start = 0
  for (let i = 0; i <= text.length; i++) {
    if (text[i] === '(') depth++
    else if (text[i] === ')') depth--
    else if (i === text.length || (text[i] === ',' && depth === 0)) {
      const part = text.slice(start, i).trim()
      if (part !== '') parts.push(part)
      start = i + 1
    }
  }
  return parts
}

function labelTest(part: string): Test {
  const of = (key: string) => (lease: KubeLease) => {
    const { labels } = lease.metadata
    return labels !== undefined && Object.hasOwn(labels, key) ? labels[key] : undefined
  }
  const [, setKey, how, list] = SET.exec(part) ?? []
  if (setKey !== undefined) {
    const values = new Set(list!.split(',').map(value => value.trim()))
    const label = of(setKey)
    return lease => {
      const value = label(lease)
      return (value !== undefined && values.has(value)) === (how === 'in')
    }
  }
  const [, key, relation, value] = /^([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)$/.exec(part) ?? []
  if (key !== undefined) {
    const label = of(key)
    return relation === '!=' ? lease => label(lease) !== value : lease => label(lease) === value
  }
  const [, not, exists] = /^(!?)\s*([^\s!=,()]+)$/.exec(part) ?? []
  if (exists === undefined) throw badRequest(`unable to parse requirement: ${part.slice(0, 64)}`)
  const label = of(exists)
  return not === '!' ? lease => label(lease) === undefined : lease => label(lease) !== undefined
}

function fieldTest(part: string): Test {
  const [, field, relation, value] = /^([^\s!=]+?)\s*(==|=|!=)\s*(.*)$/.exec(part) ?? []
  if (field !== 'metadata.name' && field !== 'metadata.namespace')
    throw badRequest(`field label not supported: ${(field ?? part).slice(0, 64)}`)
  const of = field === 'metadata.name' ? (lease: KubeLease) => lease.metadata.name : (lease: KubeLease) => lease.metadata.namespace
  return relation === '!=' ? lease => of(lease) !== value : lease => of(lease) === value
}
