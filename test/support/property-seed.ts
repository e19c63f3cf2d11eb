/**
 * Setup of every test run: property tests (fast-check) use one fixed seed, so that every run tries the same cases. `npm run test:properties` tries other
 * seeds, by LEASEHOLD_PROPERTY_SEED.
 */
import { configureGlobal } from 'fast-check'

configureGlobal({ seed: Number(process.env.LEASEHOLD_PROPERTY_SEED ?? 1) })
