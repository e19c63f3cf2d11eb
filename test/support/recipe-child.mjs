// A process that holds one lease of every recipe, reports that, and waits to be killed. `node test/support/recipe-child.mjs URL`
import { connect } from '../../dist/library/index.js'

const leases = await connect(process.argv[2], { holder: 'victim' })
const ttl = 3_000
const session = await leases.session({ ttl, renew: 'half' })
await session.put('there/victim', 'yes')
await leases.acquire('lock', { ttl })
await leases.pool('gpu').take(1, { ttl })
await session.acquire('desk', { ttl })
await leases.registry.register({ service: 's', instance: 'victim', address: 'http://10.0.0.7:8080', ttl, grace: 500 })
const cache = leases.cache('config', { load: () => 'old', ttl })
await cache.get('a')
const terms = leases.election('seat', { ttl }).terms({ signal: new AbortController().signal })
const { value: term } = await terms.next()
process.send({ token: term.token })
process.on('disconnect', () => process.exit(0))
