/**
 * Setup of the quick loop (`npm run test:quick`): leaves out the tests that ask for more than the default timeout, and gives each property a time
 * limit instead of its full number of runs. `npm test` runs everything.
 */
import { configureGlobal, readConfigureGlobal } from 'fast-check'
import { beforeEach } from 'vitest'
import { QUICK_TIMEOUT } from './bounds.ts'

/** Ms for the runs of one property. */
const PROPERTY_TIME = 1_500

configureGlobal({ ...readConfigureGlobal(), interruptAfterTimeLimit: PROPERTY_TIME, markInterruptAsFailure: false })

beforeEach(({ task, skip }) => {
  skip(task.timeout > QUICK_TIMEOUT, 'left out of the quick loop: it needs more than the default timeout')
})
