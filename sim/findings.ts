/**
 * Known findings: mistakes of the engine, its clients and its faces that are not fixed yet. Each is shown by tests that are expected to fail. A seed of
 * the simulator or a random program that meets one reports it by its name and does not fail. A finding leaves this table in the change that fixes it.
 */

import type { Feature } from './features.ts'

export type { Feature } from './features.ts'

export interface Finding {
  /** This happens today. */
  readonly sentence: string
  /** The pairs of features that show it; a feature paired with itself shows it alone. Empty: no feature of a lease or a request shows it. */
  readonly pairs: readonly (readonly [Feature, Feature])[]
  /** The file of the tests that are expected to fail. */
  readonly test: string
}

export const findings: Readonly<Record<string, Finding>> = {}

export type FindingName = string
