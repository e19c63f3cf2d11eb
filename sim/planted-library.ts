/** Mistakes of the holder's side and of recipes, planted into the real library (see planted.ts). */
import type { Planted } from './planted-mistake.ts'

const profiles = ['library'] as const

export const LIBRARY_BUGS: readonly Planted[] = [
  {
    name: 'the library counts validity from the answer (etcd, client-go, KCL)',
    file: 'src/holder/heartbeat.js',
    find: 'else if (held.renewed(sent, ttl))',
    put: 'else if (held.renewed({ ...sent, ...reading }, ttl))',
    expected: ['S1', 'S16', 'L3'],
    profiles,
  },
  {
    name: 'the library applies its safety margin on the wrong side',
    file: 'src/holder/held-lease.js',
    find: 'return validityOf(this.term, this.keeper.margin, this.keeper)',
    put: 'return this.term + this.term * 0.15',
    expected: ['S1', 'S16', 'L3'],
    profiles,
  },
  {
    name: 'the library reads only the clock that was suspended too',
    file: 'src/holder/validity.js',
    find: 'return passed - ran > UPTIME_STEP ? passed + UPTIME_STEP : ran',
    put: 'return ran',
    expected: ['S1', 'S16', 'S23'],
    profiles,
  },
  {
    name: 'the library uses a queued lease from the event of its grant (redlock 296)',
    file: 'src/holder/acquirer.js',
    find: '            return (await heldLeases.confirm(held, news)) ? held : undefined;\n        // The lease came',
    put: `            return heldLeases.heartbeat.join(Object.assign(held, { stage: 'held', resources: news.resources, tokens: news.tokens, sent: heldLeases.heartbeat.sent() })), held;
        // The lease came`,
    expected: ['S1', 'S16', 'L3'],
    profiles,
  },
  {
    name: 'the library does not report a loss until an answer comes (npm etcd3)',
    file: 'src/holder/heartbeat.js',
    find: 'if (left <= INSTANT)',
    put: 'if (false)',
    expected: ['L3'],
    profiles,
  },
  {
    name: 'the library uses a lost lease again when a late answer comes',
    file: 'src/holder/held-lease.js',
    find: "|| this.stage === 'ending' || this.stage === 'ended')\n            return false;",
    put: ")\n            return false;\n        if (this.stage === 'ended')\n            this.stage = 'held';",
    expected: ['S1', 'S16'],
    profiles,
  },
  {
    name: 'the library releases a lease before it stops using it',
    file: 'src/holder/held-leases.js',
    find: "        held.end(() => held.goneError('released by its holder'));",
    put: '',
    expected: ['S1', 'S16'],
    profiles,
  },
  {
    name: 'the library keeps using a lease that it has transferred',
    file: 'src/holder/transfer.js',
    find: "    held.stage = 'ending';\n    held.ignoreUpTo = Number.POSITIVE_INFINITY;",
    put: '',
    expected: ['S1', 'S16'],
    profiles,
  },
  {
    name: 'a leader releases its lease while its work goes on (kubernetes 139991)',
    file: 'src/recipe/election.js',
    find: '        this.#successor = successor;\n        const to',
    put: '        this.#successor = successor;\n        void this.lease.release();\n        const to',
    expected: ['S16'],
    profiles,
  },
  {
    name: 'a leader continues without reading the clock (client-go)',
    file: 'src/holder/held-lease.js',
    find: 'if (this.timeLeft(now, uptime) > 0)\n            return true;\n        this.keeper.expire(this);\n        return false;',
    put: 'return true;',
    expected: ['S16', 'S1'],
    profiles,
  },
  {
    name: 'a cache write does not wait for readers',
    file: 'src/recipe/cache.js',
    find: '{ ...options, advanced: { recall: true } }',
    put: "{ ...options, mode: 'shared', advanced: { recall: true } }",
    expected: ['S23'],
    profiles,
  },
  {
    name: 'a cache keeps a value without a lease',
    file: 'src/recipe/cache.js',
    find: 'if (cached.lease.held)',
    put: 'if (true)',
    expected: ['S23'],
    profiles,
  },
]
