/** `leasehold explain --term`: which terms `ttl: auto` gives to leases on a resource, and why, in one sentence. */
import { explainExpectation } from '../holder/learned-terms.ts'
import type { Invocation } from './invocation.ts'
import { clean } from './output.ts'

export async function explainTermOf({ leases, out }: Invocation, name: string, chosen: string | undefined): Promise<void> {
  const learned = await leases.learned(name, chosen === undefined ? {} : { class: chosen })
  const { kind, first, ended, died, dies, fixed } = learned.plan
  if (out.json)
    await out.data({
      ...{ resource: name, class: learned.class, plan: kind, first, fixed, ended, died, dies, explanation: learned.explanation },
      ...(learned.expect !== undefined && { expect: Math.round(learned.expect) }),
    })
  else await out.text(clean(`${learned.explanation} ${explainExpectation(learned)}`))
}
