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
  'failover',
  'cases',
  'idle',
] as const
export type ProfileName = (typeof PROFILES)[number]

/** Run by name only: most of these worlds take as long as five others. */
const BY_NAME: readonly ProfileName[] = ['agents', 'combined', 'directed', 'failover', 'cases', 'idle']

/**
 * Seeds take their profiles in turns. Worlds with whole servers or two builds cost twice as much as the others, and run half as often.
 */
export const MIX: readonly ProfileName[] = [
  ...PROFILES.filter(name => !BY_NAME.includes(name)),
  ...PROFILES.filter(name => !['resp', 'http', 'rolling', 'rollback', ...BY_NAME].includes(name)),
]
