/** Names that nothing can ever have are told to the caller, and not answered with "nobody has it". */
import { badName, badPrefix } from '../kernel/name.ts'
import { usage } from './exit.ts'

const NEXT = 'Names are segments with / between them, such as jobs/nightly.'

export function mustName(name: string): void {
  const bad = badName(name)
  if (bad !== undefined) throw usage(`no resource is called ${JSON.stringify(name)}: it ${bad}`, NEXT)
}

export function mustPrefix(prefix: string): void {
  const bad = badPrefix(prefix)
  if (bad !== undefined) throw usage(`nothing is under ${JSON.stringify(prefix)}: it ${bad}`, NEXT)
}
