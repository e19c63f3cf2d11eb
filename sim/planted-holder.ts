/** Mistakes of holders, planted into the simulated holder (see planted.ts). */
import type { Planted } from './planted-mistake.ts'

export const HOLDER_BUGS: readonly Planted[] = [
  {
    name: 'a holder counts validity from the answer (etcd, client-go, KCL)',
    file: 'sim/holder.js',
    find: 'now: sent.now + valid, uptime: sent.uptime + valid',
    put: 'now: this.#clock.now() + valid, uptime: this.#clock.uptime() + valid',
    expected: ['S1'],
  },
  {
    name: 'the safety margin is on the wrong side',
    file: 'sim/holder.js',
    find: 'const DELTA = 0.01',
    put: 'const DELTA = -0.1',
    expected: ['S1'],
  },
  {
    name: 'a holder on a suspended machine reads only the clock that was suspended too',
    file: 'sim/holder.js',
    find: ' && this.#clock.uptime() < this.#until.uptime',
    put: '',
    expected: ['S1'],
    profiles: ['embedded', 'servers'],
  },
  {
    name: 'a waiter uses its lease from the event of its grant (redlock 296)',
    file: 'sim/holder.js',
    find: "const ttl = outcome.kind === 'renewed' ? outcome.ttls[0] : -1;",
    put: "const ttl = Math.max(900, outcome.kind === 'renewed' ? outcome.ttls[0] : -1);",
    expected: ['S1', 'S4'],
  },
  {
    name: 'a holder uses a lease that expired by its own clock when a late answer comes',
    file: 'sim/holder.js',
    find: 'if (!held.holds())\n                return;\n            held.believe(sent, ttl);',
    put: 'held.believe(held.mark(0), ttl);',
    expected: ['S1'],
    profiles: ['servers', 'embedded'],
  },
  {
    name: 'a holder releases its lease while its work goes on (kubernetes 139991)',
    file: 'sim/holder.js',
    find: 'held.stop();\n        this.#site.referee.givenUp.add(held.lease);\n        // What hangs',
    put: 'this.#site.referee.givenUp.add(held.lease);\n        // What hangs',
    expected: ['S1'],
  },
  {
    name: 'a holder keeps using a lease after it has transferred it',
    file: 'sim/holder.js',
    find: 'held.stop();\n        this.#site.referee.givenUp.add(held.lease);\n        const',
    put: 'this.#site.referee.givenUp.add(held.lease);\n        const',
    expected: ['S1'],
  },
  {
    name: 'a holder ignores a failed renewal (Redisson 4698, Consul)',
    file: 'sim/holder.js',
    find: 'const ttl = outcome.ttls[0];\n            if (ttl <= 0)',
    put: 'const ttl = Math.max(900, outcome.ttls[0]);\n            if (ttl <= 0)',
    expected: ['S1', 'S4'],
  },
]
