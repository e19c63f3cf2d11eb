/** Makes the engine that `certify` examines from its URL. */
import { type Clock, systemClock } from '../../clock.ts'
import { schemeOf } from '../../connect/url.ts'
import { LeaseError } from '../../errors.ts'
import type { EngineUnderTest } from '../../store/certification.ts'
import { STORES, storeModule } from '../../store/modules.ts'

/** The store URLs that certify accepts, for messages and help. */
const CERTIFIABLE = STORES.flatMap(({ certify, url }) => (certify === undefined ? [] : [url])).join(', ')

export async function engineUnderTest(url: string, clock: Clock = systemClock): Promise<EngineUnderTest> {
  const scheme = schemeOf(url)
  const module = storeModule(scheme)
  if (module?.certify === undefined)
    throw new LeaseError('INVALID', `certify examines a store outside this process: ${CERTIFIABLE}`, { facts: { scheme: scheme ?? '' } })
  return module.certify(url, { prefix: `certify-${clock.bits().toString(36).padStart(8, '0').slice(-8)}`, clock })
}
