/** The right that each action of an operator needs on every name it touches: what the server's preview checks, and which buttons the dashboard shows. */
import type { Verb } from '../../kernel/command.ts'

/** A key may also release, transfer and revoke what was acquired with it. */
export const ACTION_VERBS = {
  release: 'admin',
  revoke: 'revoke',
  break: 'break',
  recall: 'acquire',
  transfer: 'admin',
  policy: 'policy',
} as const satisfies Readonly<Record<string, Verb>>

export type OperatorAction = keyof typeof ACTION_VERBS
