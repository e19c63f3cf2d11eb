/**
 * The share of a long random search that `npm test` runs. It tries the same cases every time, so it notices what a change has broken; new cases are tried by
 * `npm run test:properties`, which runs the whole with other seeds.
 */
const SHARE = process.env.LEASEHOLD_SEARCH === 'whole' ? 1 : 0.2

/** Returns the number of random cases to try, out of `whole`. */
export function runs(whole: number): number {
  return Math.ceil(whole * SHARE)
}

/** The seed of random cases that fast-check does not make; `otherwise` in `npm test`. */
export function searchSeed(otherwise: number): number {
  return Number(process.env.LEASEHOLD_PROPERTY_SEED ?? otherwise)
}
