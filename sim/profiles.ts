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
  'directed',
] as const
export type ProfileName = (typeof PROFILES)[number]

/**
 * Seeds take their profiles in turns. Worlds with whole servers or two builds cost twice as much as the others, and run half as often.
 */
export const MIX: readonly ProfileName[] = [
  // Run by name only: these worlds take as long as five others.
  ...PROFILES.filter(name => !['agents', 'combined', 'directed'].includes(name)),
  ...PROFILES.filter(name => !['resp', 'http', 'rolling', 'rollback', 'agents', 'combined', 'directed'].includes(name)),
]
