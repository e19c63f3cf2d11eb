/** The kinds of simulated worlds, and how often each is run. */

export const PROFILES = [
  'embedded',
  'servers',
  'owned',
  'restless',
  'moving',
  'calm',
  'library',
  'resp',
  'http',
  'rolling',
  'rollback',
  'transactions',
  'pool',
  'agents',
  'combined',
] as const
export type ProfileName = (typeof PROFILES)[number]

/**
 * Seeds take their profiles in turns. Worlds with whole servers or two builds cost twice as much as the others, and run half as often.
 */
export const MIX: readonly ProfileName[] = [
  // Agents and the combined world are run by name only: their worlds take as long as five others.
  ...PROFILES.filter(name => name !== 'agents' && name !== 'combined'),
  ...PROFILES.filter(name => !['resp', 'http', 'rolling', 'rollback', 'agents', 'combined'].includes(name)),
]
