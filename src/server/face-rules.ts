/** Policies that faces need: a face that keeps entries without a lease must be allowed to, under its own prefix and nowhere else. */
import { LeaseError } from '../errors.ts'
import type { Face } from '../face/face.ts'
import { propose } from '../lessor/propose.ts'
import type { Lessor } from '../lessor.ts'
import { sentenceOf } from '../wording.ts'

/** Sets the rules of each face under its prefix. A rule that a policy for this prefix sets already stays: the operator has decided it. */
export async function setFaceRules(lessor: Lessor, faces: readonly Face[]): Promise<void> {
  const ruled = faces.filter(({ rules }) => rules !== undefined)
  if (ruled.length === 0) return
  const { value: policies } = await lessor.read<'policies'>({ kind: 'policies' }, { consistent: true })
  for (const { name, rules: needed } of ruled) {
    const known = policies.find(({ prefix }) => prefix === name)?.rules
    const rules = { ...needed, ...known }
    if (known !== undefined && Object.keys(rules).length === Object.keys(known).length) continue
    const outcome = await propose(lessor, { kind: 'policy', prefix: name, rules })
    if (outcome.kind === 'refused') {
      const { code, reason, facts } = outcome
      throw new LeaseError(code, `the face ${name} cannot be answered: ${sentenceOf(outcome)}`, { reason, facts })
    }
  }
}
