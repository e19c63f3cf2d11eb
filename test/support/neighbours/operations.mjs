// Every operation that a client can ask a server for, as it is asked for against the state of large-state.mjs: in the test of slices, and in `npm run soak -- neighbours`.
//
// The test compares this list with the tables of the server: an operation that is missing here fails it. An operation may be asked for in several ways.

/** @param {string} name @param {object} [body] @param {object} [more] */
const http = (name, body, more = {}) => {
  const [method, path] = name.split(' ')
  return { part: 'http', name, method, target: path, body, ...more }
}

const faceJson = part => (name, body, more) => ({ ...http(name, body, more), part })
const etcd = (call, body, more) => faceJson('etcd')(`POST /v3/${call}`, body, more)
const [consul, kubernetes, eureka] = ['consul', 'kubernetes', 'eureka'].map(faceJson)
const resp = (...words) => ({ part: 'resp', name: words[0], words })
const query = (kind, fields = {}) => ({
  part: 'query',
  name: kind,
  method: 'POST',
  target: '/v1/read',
  body: { query: { kind, ...fields } },
})

const base64 = text => Buffer.from(text).toString('base64')
const ALL_KEYS = { key: base64('\0'), range_end: base64('\0') }
const HASH = (i, n) => `${i}${n}`.padStart(64, 'a')
const LEASES = '/apis/coordination.k8s.io/v1'
const leaseObject = (name, holder) => ({
  apiVersion: 'coordination.k8s.io/v1',
  kind: 'Lease',
  metadata: { name, namespace: 'team-1' },
  spec: holder === undefined ? {} : { holderIdentity: holder, leaseDurationSeconds: 600 },
})
const xml = { headers: { accept: 'application/xml' } }
const eurekaInstance = id => ({
  instance: {
    instanceId: id,
    app: 'GREEDY',
    hostName: 'h',
    ipAddr: '10.0.0.1',
    status: 'UP',
    port: { $: 80, '@enabled': 'true' },
    dataCenterInfo: { name: 'MyOwn' },
  },
})

/**
 * `ids`: of leases of the state (LargeState). `copy`: which of the copies that are asked for at once.
 * @param {{ lease: number, owned: readonly number[], parent: number, reservation: number, key: number }} ids @param {number} copy
 */
export function operationsFor(ids, copy) {
  const own = `copy/${copy}`
  const spare = ids.owned[copy % ids.owned.length]
  const many = ids.owned.slice(0, 10_000)
  return [
    // Leases
    http('POST /v1/leases', { holder: 'h', resources: [`${own}/lease`], ttl: '10m' }),
    { ...http('POST /v1/leases', { holder: 'h', resources: ['queue'], ttl: '10m', wait: '1s' }), way: 'a waiter behind all others' },
    { ...http('POST /v1/leases', { holder: 'h', resources: ['shared'], mode: 'shared', ttl: '10m', wait: '1s' }), way: 'a shared waiter' },
    { ...http('POST /v1/leases', { holder: 'h', pool: { pool: 'gpus', count: 4 }, ttl: '10m' }), way: 'members of a pool' },
    {
      ...http('POST /v1/leases', {
        holder: 'h',
        pool: { pool: 'gpus', count: 200, match: [{ label: `l${copy}`, test: 'absent' }] },
        ttl: '10m',
        wait: '1s',
      }),
      way: 'many members of a pool',
    },
    http('POST /v1/leases/renew', { leases: many }),
    { ...http('POST /v1/leases/{id}/renew'), target: `/v1/leases/${spare}/renew` },
    { ...http('GET /v1/leases/{id}'), target: `/v1/leases/${ids.lease}` },
    { ...http('GET /v1/leases/{id}'), target: `/v1/leases/${ids.parent}`, way: 'a parent of many' },
    http('GET /v1/leases'),
    { ...http('GET /v1/leases'), target: '/v1/leases?limit=100000', way: 'all' },
    { ...http('GET /v1/leases'), target: '/v1/leases?holder=unknown', way: 'none' },
    http('GET /v1/resources'),
    { ...http('GET /v1/resources'), target: '/v1/resources?limit=100000', way: 'all' },
    { ...http('GET /v1/resources/{name}'), target: '/v1/resources/queue' },
    { ...http('GET /v1/history/{name}'), target: '/v1/history/queue' },
    http('POST /v1/break', { resource: `broken/${copy}` }),
    http('POST /v1/recall', { resource: 'queue' }),
    http('POST /v1/revoke', { prefix: `revoked/${copy}` }),
    { ...http('POST /v1/revoke', { holder: `revoked ${copy}` }), way: 'by holder' },
    http('POST /v1/transfer', { lease: ids.owned.at(-300 - copy), to: 'other', stopped: true }),
    http('POST /v1/fence', { resource: 'queue', token: 1 }),
    { ...http('DELETE /v1/leases/{id}'), target: `/v1/leases/${ids.owned.at(-200 - copy)}` },
    { ...http('POST /v1/leases/{id}/extend', { by: '1m' }), target: `/v1/leases/${ids.lease}/extend`, refused: true },
    // Pools
    http('GET /v1/pools'),
    { ...http('GET /v1/pools/{name}'), target: '/v1/pools/gpus' },
    { ...http('GET /v1/pools/{name}'), target: '/v1/pools/gpus?limit=1000', way: 'all' },
    { ...http('GET /v1/pools/{name}/explain'), target: '/v1/pools/gpus/explain' },
    // Policies, entries, keys
    http('GET /v1/policies'),
    { ...http('GET /v1/policies/{prefix}'), target: '/v1/policies/kv' },
    { ...http('PUT /v1/policies/{prefix}', { capacity: 2 }), target: `/v1/policies/${own}` },
    { ...http('DELETE /v1/policies/{prefix}'), target: `/v1/policies/${own}` },
    http('GET /v1/entries'),
    { ...http('GET /v1/entries'), target: '/v1/entries?limit=100000', way: 'all' },
    { ...http('GET /v1/entries/{name}'), target: '/v1/entries/etcd/k/1' },
    { ...http('PUT /v1/entries/{name}', { lease: spare, value: 'x'.repeat(1_000) }), target: `/v1/entries/${own}/entry` },
    { ...http('DELETE /v1/entries/{name}'), target: `/v1/entries/${own}/entry` },
    http('POST /v1/transactions', {
      success: Array.from({ length: 128 }, (_, n) => ({ key: `kv/${copy}/${n}`, value: 'x'.repeat(400) })),
    }),
    http('GET /v1/keys'),
    http('POST /v1/keys', { name: `key ${copy}`, hash: HASH(copy, 1), allow: [{ verb: 'read', prefix: 'x' }] }),
    { ...http('POST /v1/keys/{id}/rotate', { hash: HASH(copy, 2) }), target: `/v1/keys/${ids.key}/rotate` },
    { ...http('PUT /v1/keys/{id}/limits', { leases: 5 }), target: `/v1/keys/${ids.key}/limits` },
    { ...http('PUT /v1/key-groups/{name}', { leases: 5 }), target: '/v1/key-groups/g', refused: true },
    { ...http('DELETE /v1/keys/{id}'), target: `/v1/keys/${1_000 + copy}`, refused: true },
    // Services
    { ...http('PUT /v1/services/{name}', { address: 'http://10.0.0.9:80', ttl: '10m' }), target: `/v1/services/greedy/i${copy}` },
    { ...http('POST /v1/services/{name}/heartbeat'), target: `/v1/services/greedy/i${copy}/heartbeat` },
    http('POST /v1/heartbeats', { instances: Array.from({ length: 1_000 }, (_, n) => ({ service: 'big', instance: `i${n}` })) }),
    { ...http('DELETE /v1/services/{name}'), target: `/v1/services/greedy/i${copy}` },
    http('GET /v1/services'),
    { ...http('GET /v1/services/{name}'), target: '/v1/services/big' },
    { ...http('GET /v1/services/{name}'), target: '/v1/services/big/i1', way: 'one instance' },
    http('GET /v1/discover'),
    http('GET /v1/http_sd'),
    http('POST /v3/discovery:endpoints', {
      resource_names: ['big'],
      type_url: 'type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment',
    }),
    // Watching, and the lessor
    { ...http('GET /v1/watch'), target: '/v1/watch?prefix=copy', stream: true },
    { ...http('GET /v1/watch'), target: '/v1/watch?after=1', stream: true, way: 'from the past' },
    http('GET /v1/about'),
    http('POST /v1/propose', {
      proposals: Array.from({ length: 100 }, (_, n) => ({
        command: { kind: 'acquire', holder: 'h', ttl: 600_000, wants: [{ resource: `${own}/proposed/${n}` }] },
      })),
    }),
    http('POST /v1/read', { query: { kind: 'leases' } }),
    http('GET /v1/backup'),
    // The dashboard
    http('GET /v1/whoami'),
    http('GET /v1/activity'),
    http('GET /v1/overview'),
    http('GET /v1/state'),
    http('GET /v1/losses'),
    http('GET /v1/events'),
    { ...http('GET /v1/events'), target: '/v1/events?limit=1000', way: 'all' },
    { ...http('GET /v1/episodes/{name}'), target: '/v1/episodes/queue' },
    { ...http('GET /v1/strips/{name}'), target: '/v1/strips/big' },
    { ...http('GET /v1/rows'), target: '/v1/rows?of=leases&sort=-waiters' },
    { ...http('GET /v1/rows'), target: `/v1/rows?of=resources&text=${copy}&sort=holder&offset=5000`, way: 'a search' },
    http('GET /v1/trees'),
    http('POST /v1/preview', { action: 'break', resource: 'queue' }),
    { ...http('POST /v1/preview', { action: 'revoke', prefix: '' }), way: 'the end of everything' },
    http('GET /openapi.json'),
    http('GET /'),
    http('GET /page.js'),
    http('GET /page.css'),
    http('GET /page.svg'),
    http('GET /healthz'),
    http('GET /readyz'),
    http('GET /metrics'),
    // Agents
    ...tools(own, copy),
    ...hooks(own, copy),
    ...commands(ids, own, copy),
    ...queries(ids),
    ...etcdCalls(ids, copy),
    ...consulCalls(copy),
    ...kubernetesCalls(copy),
    ...eurekaCalls(copy),
  ]
}

function tools(own, copy) {
  const tool = (name, args = {}) => ({
    part: 'tool',
    name,
    method: 'POST',
    target: `/mcp?agent=agent${copy}`,
    headers: { accept: 'application/json, text/event-stream' },
    body: { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } },
  })
  return [
    tool('whoami'),
    tool('claim', { names: Array.from({ length: 100 }, (_, n) => `name:${own}/file${n}`), purpose: 'p' }),
    tool('mine'),
    tool('look', { name: 'name:jobs' }),
    tool('ask', { name: 'name:queue', message: 'm' }),
    tool('take', { pool: 'gpus' }),
    tool('release'),
  ]
}

function hooks(own, copy) {
  const hook = (name, more) => ({
    part: 'hook',
    name,
    method: 'POST',
    target: `/v1/hooks/agent?root=/r&prefix=repo/r`,
    body: { hook_event_name: name, session_id: `session ${copy}`, cwd: '/r', ...more },
  })
  const edit = { tool_name: 'Edit', tool_input: { file_path: `/r/${own}/file` } }
  return [
    hook('SessionStart', {}),
    hook('PreToolUse', edit),
    hook('PostToolUse', edit),
    hook('PostToolUseFailure', edit),
    hook('Stop', {}),
    hook('StopFailure', {}),
    hook('SubagentStop', { agent_id: 'a' }),
    hook('SessionEnd', {}),
  ]
}

function queries(ids) {
  return [
    query('summary'),
    query('lease', { lease: ids.lease }),
    query('leases'),
    query('resource', { resource: 'queue' }),
    query('resources', { prefix: '' }),
    query('entries', { prefix: '' }),
    query('services'),
    query('pool', { pool: 'gpus' }),
    query('pools'),
    query('history', { resource: 'queue' }),
    query('durations', { class: 'jobs' }),
    query('policies'),
    query('keys'),
  ]
}

function commands(ids, own, copy) {
  const lease = ids.owned.at(-100 - copy)
  const script = "local n = 0 for i = 1, 100 do n = n + 1 end return redis.call('get', KEYS[1])"
  return [
    resp('PING'),
    resp('ECHO', 'x'.repeat(10_000)),
    resp('SELECT', '0'),
    resp('CLIENT', 'ID'),
    resp('CONFIG', 'GET', 'save'),
    resp('COMMAND', 'DOCS'),
    resp('INFO'),
    resp('TIME'),
    resp('HELLO', '3'),
    resp('AUTH', 'secret-of-rich'),
    resp('LEASE.ACQUIRE', `${own}/resp`, 'TTL', '600000'),
    resp('LEASE.GRANT', 'TTL', '600000', 'ENTRY', `${own}/resp-entry`, 'value'),
    resp('LEASE.WIDEN', lease, 'RESOURCE', `${own}/wide`),
    resp('LEASE.RENEW', ...ids.owned.slice(0, 5_000)),
    resp('LEASE.REVOKE', 'PREFIX', `revoked/resp/${copy}`),
    resp('LEASE.BREAK', `broken/resp/${copy}`),
    resp('LEASE.RECALL', 'queue'),
    resp('LEASE.TRANSFER', lease, 'TO', 'other'),
    { ...resp('LEASE.CLAIM', ids.owned.at(-400 - copy), 'INCARNATION', '7'), refused: true },
    resp('LEASE.PUT', ids.owned.at(-400 - copy), `${own}/put`, 'x'.repeat(1_000)),
    resp('LEASE.DEL', `${own}/put`),
    resp('LEASE.RELEASE', ids.owned.at(-400 - copy)),
    resp('LEASE.FENCE', 'queue', '1'),
    resp('LEASE.WATCH', 'copy'),
    resp('LEASE.UNWATCH'),
    resp('LEASE.POLICY', 'SET', own, 'capacity', '2'),
    resp('LEASE.KEY', 'LIST'),
    { ...resp('LEASE.BATCH', ''), refused: true },
    resp('LEASE.INFO', ids.lease),
    resp('LEASE.SHOW', 'queue'),
    resp('LEASE.LIST', '', 'LIMIT', '100000'),
    resp('LEASE.LEASES', 'PREFIX', '', 'LIMIT', '100000'),
    resp('LEASE.ENTRIES', '', 'LIMIT', '100000'),
    resp('LEASE.SERVICES'),
    resp('LEASE.HISTORY', 'queue'),
    // Of the Redis face
    resp('SET', `lock:${copy}`, 'token', 'NX', 'PX', '600000'),
    resp('GET', `lock:${copy}`),
    resp('EXISTS', `lock:${copy}`),
    resp('PEXPIRE', `lock:${copy}`, '600000'),
    resp('EXPIRE', `lock:${copy}`, '600'),
    resp('PTTL', `lock:${copy}`),
    resp('TTL', `lock:${copy}`),
    resp('BLPOP', `lock-signal:${copy}`, '1'),
    resp('EVAL', script, '1', `lock:${copy}`),
    { ...resp('EVALSHA', '0'.repeat(40), '1', `lock:${copy}`), refused: true },
    resp('SCRIPT', 'LOAD', 'return 1'),
    resp('DELIFEQ', `lock:${copy}`, 'other'),
    resp('DELEX', `lock:${copy}`, 'IFEQ', 'other'),
    resp('DEL', ...Array.from({ length: 64 }, (_, n) => `lock:${n}`)),
    resp('UNLINK', ...Array.from({ length: 64 }, (_, n) => `lock:${n}`)),
    resp('RESET'),
    resp('QUIT'),
  ]
}

function etcdCalls(ids, copy) {
  const key = base64(`copy/${copy}`)
  const election = { name: base64(`copy/election/${copy}`), lease: String(ids.etcdLease) }
  return [
    etcd('kv/range', ALL_KEYS),
    { ...etcd('kv/range', { ...ALL_KEYS, sort_order: 'DESCEND', sort_target: 'MOD', limit: '10' }), way: 'in another order' },
    { ...etcd('kv/range', { ...ALL_KEYS, count_only: true }), way: 'counted' },
    { ...etcd('kv/range', { key: base64('k/1') }), way: 'one key' },
    etcd('kv/put', { key, value: base64('x'.repeat(1_000)) }),
    etcd('kv/deleterange', { key }),
    { ...etcd('kv/deleterange', { key: base64(`k/1${copy}`), range_end: base64(`k/1${copy}~`) }), way: 'of a range' },
    etcd('kv/txn', {
      compare: [{ key, target: 'CREATE', create_revision: '0', result: 'EQUAL' }],
      success: [{ request_range: { key: base64('k/1') } }],
      failure: [],
    }),
    {
      ...etcd('kv/txn', { success: Array.from({ length: 128 }, () => ({ request_range: ALL_KEYS })) }),
      way: '128 ranges of everything',
      refused: true,
    },
    etcd('kv/compaction', { revision: '1' }, { refused: true }),
    etcd('lease/grant', { TTL: '600' }),
    etcd('lease/revoke', { ID: '999999999' }, { refused: true }),
    etcd('kv/lease/revoke', { ID: '999999999' }, { refused: true }),
    etcd('lease/timetolive', { ID: String(ids.etcdLease), keys: true }),
    etcd('kv/lease/timetolive', { ID: String(ids.etcdLease), keys: true }),
    etcd('lease/leases', {}),
    etcd('kv/lease/leases', {}),
    etcd('auth/authenticate', { name: 'root', password: 'wrong' }, { refused: true }),
    etcd('lock/lock', { name: base64(`copy/lock/${copy}`), lease: String(ids.etcdLease) }),
    etcd('lock/unlock', { key: base64(`copy/lock/${copy}/none`) }),
    etcd('election/campaign', { ...election, value: base64('v') }),
    etcd('election/proclaim', { leader: { ...election, key: election.name, rev: '1' }, value: base64('v') }, { refused: true }),
    etcd('election/leader', election),
    etcd('election/resign', { leader: { ...election, key: election.name, rev: '1' } }),
    etcd('election/observe', election, { stream: true }),
    etcd('maintenance/status', {}),
    etcd('cluster/member/list', {}),
    etcd('lease/keepalive', { ID: String(ids.etcdLease) }),
    etcd('watch', { create_request: ALL_KEYS }, { stream: true }),
    { ...etcd('watch', { create_request: { ...ALL_KEYS, prev_kv: true } }, { stream: true }), way: 'with former values' },
    { part: 'etcd', name: 'GET /version', method: 'GET', target: '/version' },
    { part: 'etcd', name: 'GET /health', method: 'GET', target: '/health' },
  ]
}

function consulCalls(copy) {
  const to = (call, target, body, more) => ({ ...consul(call, body, more), target })
  const session = '00000000-0000-4000-8000-000000000000'
  const service = { Name: 'greedy', ID: `g${copy}`, Address: '10.0.0.1', Port: 80, Check: { TTL: '600s', CheckID: `c${copy}` } }
  const changes = Array.from({ length: 64 }, (_, n) => ({ KV: { Verb: 'set', Key: `copy/${copy}/${n}`, Value: base64('v') } }))
  return [
    to('GET /v1/kv/{key}', '/v1/kv/k/1'),
    { ...to('GET /v1/kv/{key}', '/v1/kv/?recurse'), way: 'everything' },
    { ...to('GET /v1/kv/{key}', '/v1/kv/?keys'), way: 'all keys' },
    { ...to('GET /v1/kv/{key}', '/v1/kv/k/?keys&separator=/'), way: 'the keys of a folder' },
    to('PUT /v1/kv/{key}', `/v1/kv/copy/${copy}`, { x: 'x'.repeat(1_000) }),
    to('DELETE /v1/kv/{key}', `/v1/kv/copy/${copy}`),
    consul('PUT /v1/txn', changes),
    { ...consul('PUT /v1/txn', [{ KV: { Verb: 'get-tree', Key: '' } }]), way: 'everything', refused: true },
    consul('PUT /v1/session/create', { TTL: '600s' }),
    to('PUT /v1/session/renew/{name}', `/v1/session/renew/${session}`, undefined, { refused: true }),
    to('PUT /v1/session/destroy/{name}', `/v1/session/destroy/${session}`),
    to('GET /v1/session/info/{name}', `/v1/session/info/${session}`),
    consul('GET /v1/session/list'),
    to('GET /v1/session/node/{name}', '/v1/session/node/leasehold'),
    consul('PUT /v1/agent/service/register', service),
    to('PUT /v1/agent/service/maintenance/{name}', `/v1/agent/service/maintenance/g${copy}?enable=true`),
    consul('PUT /v1/agent/check/register', { ServiceID: `g${copy}`, ID: `c${copy}`, Name: 'c', TTL: '600s' }),
    to('PUT /v1/agent/check/pass/{name}', `/v1/agent/check/pass/c${copy}`),
    to('PUT /v1/agent/check/warn/{name}', `/v1/agent/check/warn/c${copy}`),
    to('PUT /v1/agent/check/fail/{name}', `/v1/agent/check/fail/unknown${copy}`, undefined, { refused: true }),
    to('PUT /v1/agent/check/update/{name}', `/v1/agent/check/update/c${copy}`, { Status: 'passing' }),
    to('PUT /v1/agent/check/deregister/{name}', `/v1/agent/check/deregister/unknown${copy}`, undefined, { refused: true }),
    consul('GET /v1/agent/services'),
    to('GET /v1/agent/service/{name}', `/v1/agent/service/g${copy}`),
    { ...to('GET /v1/agent/service/{name}', '/v1/agent/service/UNKNOWN', undefined, { refused: true }), way: 'one that is not there' },
    consul('GET /v1/agent/checks'),
    to('GET /v1/agent/health/service/id/{name}', '/v1/agent/health/service/id/i1'),
    to('GET /v1/agent/health/service/name/{name}', '/v1/agent/health/service/name/big'),
    consul('GET /v1/agent/self'),
    to('PUT /v1/agent/service/deregister/{name}', `/v1/agent/service/deregister/g${copy}`),
    consul('GET /v1/agent/members'),
    consul('GET /v1/catalog/nodes'),
    to('GET /v1/catalog/node/{name}', '/v1/catalog/node/leasehold'),
    consul('GET /v1/catalog/datacenters'),
    to('GET /v1/health/node/{name}', '/v1/health/node/leasehold'),
    consul('GET /v1/status/leader'),
    consul('GET /v1/status/peers'),
    consul('GET /v1/catalog/services'),
    to('GET /v1/catalog/service/{name}', '/v1/catalog/service/big'),
    to('GET /v1/health/service/{name}', '/v1/health/service/big'),
    to('GET /v1/health/checks/{name}', '/v1/health/checks/big'),
    to('GET /v1/health/state/{name}', '/v1/health/state/any'),
  ]
}

function kubernetesCalls(copy) {
  const of = (method, path, target, body, more) => ({ ...kubernetes(`${method} ${LEASES}${path}`, body, more), target: LEASES + target })
  const [all, some, one] = ['/leases', '/namespaces/{namespace}/leases', '/namespaces/{namespace}/leases/{name}']
  const mine = `/namespaces/team-1/leases/copy-${copy}`
  const as = accept => ({ headers: { accept } })
  return [
    of('GET', all, all),
    { ...of('GET', all, all, undefined, as('application/vnd.kubernetes.protobuf')), way: 'as protobuf' },
    { ...of('GET', all, all, undefined, as('application/json;as=Table;v=v1;g=meta.k8s.io')), way: 'as a table' },
    { ...of('GET', all, `${all}?limit=500`), way: 'a page' },
    { ...of('GET', all, `${all}?labelSelector=a%3Db`), way: 'by a label' },
    of('GET', `${all}?watch=true`, `${all}?watch=true`, undefined, { stream: true }),
    of('GET', some, '/namespaces/team-1/leases'),
    of('GET', `${some}?watch=true`, '/namespaces/team-1/leases?watch=true', undefined, { stream: true }),
    of('POST', some, '/namespaces/team-1/leases', leaseObject(`copy-${copy}`, 'me')),
    of('GET', one, mine),
    of('GET', `${one}?watch=true`, `${mine}?watch=true`, undefined, { stream: true }),
    of('PUT', one, mine, leaseObject(`copy-${copy}`, 'me'), { refused: true }),
    of('PATCH', one, mine, { metadata: { labels: { a: 'b' } } }, { headers: { 'content-type': 'application/merge-patch+json' } }),
    of('DELETE', one, mine),
    of('DELETE', some, '/namespaces/team-none/leases'),
    kubernetes('GET /api/v1/namespaces'),
    { ...kubernetes('GET /api/v1/namespaces/{name}'), target: '/api/v1/namespaces/team-1' },
    ...DOCUMENTS.map(path => kubernetes(`GET ${path}`)),
  ]
}

/** The documents of the Kubernetes face: each is one text that is made once. */
const DOCUMENTS = [
  ...['/api', '/api/v1', '/apis', '/apis/coordination.k8s.io', '/apis/coordination.k8s.io/v1', '/version'],
  ...['/openapi/v2', '/openapi/v3', '/openapi/v3/apis/coordination.k8s.io/v1'],
]

function eurekaCalls(copy) {
  const to = (call, target, body, more) => ({ ...eureka(`${call}`, body, more), target: `/eureka/${target}` })
  const id = `greedy-${copy}`
  return [
    to('GET /eureka/apps', 'apps'),
    { ...to('GET /eureka/apps', 'apps', undefined, xml), way: 'as XML' },
    to('GET /eureka/apps/delta', 'apps/delta'),
    to('GET /eureka/apps/{app}', 'apps/BIG'),
    to('GET /eureka/apps/{app}/{id}', 'apps/BIG/i1'),
    to('POST /eureka/apps/{app}', 'apps/GREEDY', eurekaInstance(id)),
    to('PUT /eureka/apps/{app}/{id}', `apps/GREEDY/${id}`),
    to('PUT /eureka/apps/{app}/{id}/status', `apps/GREEDY/${id}/status?value=OUT_OF_SERVICE`),
    to('DELETE /eureka/apps/{app}/{id}/status', `apps/GREEDY/${id}/status`),
    to('PUT /eureka/apps/{app}/{id}/metadata', `apps/GREEDY/${id}/metadata?a=b`),
    to('GET /eureka/instances/{id}', `instances/${id}`),
    { ...to('GET /eureka/instances/{id}', 'instances/UNKNOWN', undefined, { refused: true }), way: 'one that is not there' },
    to('GET /eureka/vips/{address}', 'vips/big'),
    to('GET /eureka/svips/{address}', 'svips/big'),
    to('DELETE /eureka/apps/{app}/{id}', `apps/GREEDY/${id}`),
  ]
}
