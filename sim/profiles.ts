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
] as const
export type ProfileName = (typeof PROFILES)[number]

/**
 * Seeds take their profiles in turns. Worlds with whole servers or two builds cost twice as much as the others, and run half as often.
 */
export const MIX: readonly ProfileName[] = [
  // Agents are run by name only (--profile agents): their worlds take as long as five others.
  ...PROFILES.filter(name => name !== 'agents'),
  ...PROFILES.filter(name => name !== 'resp' && name !== 'http' && name !== 'rolling' && name !== 'rollback' && name !== 'agents'),
]
