/** The findings that random programs of commands can meet: known ones, and those that these programs were the first to meet. */
import type { FindingName } from '../../../sim/findings.ts'

export type ProgramFinding = FindingName | keyof typeof ownFindings

/** Each leaves this table in the change that fixes it. */
export const ownFindings = {
  'transfer-drops-class': 'A transferred lease loses its labels, and with them its class of work.',
  'transfer-refunds-twice': 'A transferred lease of pool members gives back its advance on the usage of its account twice.',
} as const
