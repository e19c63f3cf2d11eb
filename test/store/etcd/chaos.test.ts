import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { EtcdStore } from '../../../src/store/etcd/etcd.ts'
import { etcdOptions } from '../../../src/store/etcd/url.ts'
import {
  answersCut,
  type Chaos,
  chaos,
  connectionsCut,
  engineKilled,
  enginePaused,
  type Fault,
  replicaCutOff,
  replicaInSilence,
  replicaKilled,
  replicaPaused,
} from '../../support/chaos/chaos.ts'
import { describeEngine, engine, type Member } from '../../support/engine.ts'
import { compact, leader } from '../../support/etcd.ts'

const leaderKilled: Fault = {
  name: 'the leader is killed',
  async run({ engine }) {
    const member = await leader(engine)
    await member.kill9()
    await leader(engine)
    await member.restart()
    await engine.ready()
  },
}

const leaderPaused: Fault = {
  name: 'the leader is paused for longer than the ttl',
  run: async run => standStill(run, await leader(run.engine)),
}

const followerPaused: Fault = {
  name: 'a follower is paused for longer than the ttl',
  async run(run) {
    const { port } = await leader(run.engine)
    await standStill(run, run.any(run.engine.members.filter(member => member.port !== port)))
  },
}

const majorityKilled: Fault = {
  name: 'two of three members are killed',
  async run({ engine }) {
    const [one, two] = engine.members as [Member, Member]
    await Promise.all([one.kill9(), two.kill9()])
    await Promise.all([one.restart(), two.restart()])
    await engine.ready()
  },
}

const leaderCutOff: Fault = {
  name: 'every replica is cut off from the leader, and only from the leader, for longer than the ttl',
  async run(run) {
    const { port } = await leader(run.engine)
    const cables = run.replicas.map(replica => replica.cables[run.engine.ports.indexOf(port)]!)
    for (const cable of cables) cable.silence()
    await run.pastTheTtl()
    for (const cable of cables) cable.heal()
  },
}

const compacted: Fault = {
  name: 'the history is compacted while a replica is paused',
  async run(run) {
    const replica = run.any(run.replicas)
    replica.pause()
    await sleep(run.ttl / 2)
    await compact(run.engine)
    replica.resume()
  },
}

async function standStill(run: Chaos, member: Member): Promise<void> {
  member.pause()
  try {
    await run.pastTheTtl()
  } finally {
    member.resume()
  }
}

describeEngine('etcd3', 'chaos', () => {
  test('under a series of faults on three members no two holders overlap, no acknowledged record is lost, and grants resume', {
    timeout: 400_000,
  }, async () => {
    await using etcd = await engine('etcd3')
    const report = await chaos({
      engine: etcd,
      store: url => new EtcdStore(etcdOptions(url)),
      // Shorter than an election and than a pause, so that answers arrive after their timeout.
      child: { module: 'store/etcd/etcd.js', name: 'EtcdStore', options: url => ({ ...etcdOptions(url), timeout: 900 }) },
      faults: [
        ...[leaderKilled, replicaPaused, answersCut, leaderPaused, replicaKilled, connectionsCut, compacted, followerPaused],
        ...[answersCut, replicaCutOff, enginePaused, leaderCutOff, answersCut, connectionsCut, replicaInSilence, majorityKilled],
        ...[answersCut, replicaKilled, compacted, engineKilled, connectionsCut, replicaPaused, answersCut, leaderPaused, compacted],
      ],
      cycles: 50,
    })
    console.info(JSON.stringify(report))
    expect(report.violations).toEqual([])
    expect(report.snapshots).toBe(true)
    expect(report.beliefs).toBeGreaterThan(200)
    expect(report.lost).toBeGreaterThan(0)
  })
})
