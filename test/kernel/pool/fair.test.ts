/** Fair shares in virtual time, on the real kernel: what each of two users gets, with and without preemption. */
import { describe, expect, test } from 'vitest'
import { type Job, Lab, POOL, plainMembers } from '../../support/kernel/lab.ts'
import { random } from '../../support/kernel/stream.ts'

const second = 1_000
const minute = 60 * second
const hour = 60 * minute

/** Keeps so many jobs of each user waiting, from the time on at which the user comes. */
function demand(lab: Lab, users: Readonly<Record<string, number>>, job: (account: string) => Job, backlog: number): void {
  for (const [account, from] of Object.entries(users)) {
    const top = (): void => {
      while (lab.waiting(account) < backlog) lab.submit(job(account))
      lab.at(lab.now + 5 * second, top)
    }
    lab.at(from, top)
  }
}

describe('with preemption, each of two equal users gets 45 to 55 % of any hour with demand', { timeout: 900_000 }, () => {
  test.each([
    ...[1, 2, 3, 8].map(members => ({ members, jobs: 'hours', halfLife: undefined })),
    ...[1, 3, 8].map(members => ({ members, jobs: 'minutes', halfLife: 7 * 24 * hour })),
    { members: 5, jobs: 'unequal', halfLife: undefined },
  ])('$members members, jobs of $jobs, after one of them was alone', ({ members, jobs, halfLife }) => {
    for (let seed = 1; seed <= 2; seed++) {
      const draw = random(seed)
      const lab = new Lab({
        members: plainMembers(members),
        rules: { queue: 'fair', preempt: 'marked', preemptNotice: 20 * second, ...(halfLife && { shareHalfLife: halfLife }) },
        tick: 5 * second,
      })
      const takes = (account: string): number => {
        if (jobs === 'hours') return 2 * hour + draw(10) * hour
        if (jobs === 'minutes') return minute + draw(20) * minute
        return account === 'ann' ? 6 * hour : 30 * second + draw(60) * second
      }
      const job = (account: string): Job => ({
        account,
        takes: takes(account),
        preemptible: true,
        again: 'rest',
        stopsAfter: draw(10) * second,
      })
      demand(lab, { ann: 0, bob: 3 * hour + draw(60) * minute }, job, members)
      const from = 4 * hour
      lab.runUntil(from + 4 * hour)
      for (let at = from; at + hour <= lab.now; at += 5 * minute) {
        const [ann, bob] = ['ann', 'bob'].map(account => lab.used(account, at, at + hour)) as [number, number]
        expect(ann + bob, `used of the hour from ${at / minute} min`).toBeGreaterThan(0.9 * members * hour)
        expect(ann / (ann + bob), `share of the hour from ${at / minute} min, seed ${seed}`).toBeGreaterThan(0.45)
        expect(ann / (ann + bob), `share of the hour from ${at / minute} min, seed ${seed}`).toBeLessThan(0.55)
      }
    }
  })

  test('from the moment at which the second one comes', () => {
    const lab = new Lab({ members: plainMembers(4), rules: { queue: 'fair', preempt: 'marked', preemptNotice: 10 * second } })
    demand(
      lab,
      { ann: 0, bob: 5 * hour },
      account => ({ account, takes: 10 * hour, preemptible: true, again: 'rest', stopsAfter: second }),
      4,
    )
    lab.runUntil(6 * hour)
    const [ann, bob] = ['ann', 'bob'].map(account => lab.used(account, 5 * hour, 6 * hour)) as [number, number]
    expect(bob / (ann + bob)).toBeGreaterThan(0.45)
    // Four members are divided once and for all: two preemptions, no rotation.
    expect(lab.preemptions).toBe(2)
  })
})

test('with preemption and weights of 3 to 1, the shares are about 3 to 1', () => {
  const lab = new Lab({
    members: plainMembers(8),
    rules: { queue: 'fair', preempt: 'marked', preemptNotice: second },
    accounts: { ann: { shareWeight: 300 }, bob: { shareWeight: 100 } },
    tick: 5 * second,
  })
  demand(lab, { ann: 0, bob: 0 }, account => ({ account, takes: hour, preemptible: true, again: 'rest', stopsAfter: 0 }), 8)
  lab.runUntil(6 * hour)
  const [ann, bob] = ['ann', 'bob'].map(account => lab.used(account, hour, 6 * hour)) as [number, number]
  expect(ann / bob).toBeGreaterThan(2.7)
  expect(ann / bob).toBeLessThan(3.3)
})

describe('without preemption, the debt is repaid within twice the longest job', { timeout: 900_000 }, () => {
  test.each([1, 4, 8])('%i members', members => {
    for (let seed = 1; seed <= 3; seed++) {
      const draw = random(seed)
      const longest = (1 + draw(10)) * hour
      const lab = new Lab({ members: plainMembers(members), rules: { queue: 'fair' }, tick: 10 * second })
      // The first user starts the longest jobs on all members just before the second one comes, with jobs that are much shorter.
      const from = 10 * minute
      lab.at(from - second, () => {
        for (let i = 0; i < members; i++) lab.submit({ account: 'ann', takes: longest })
      })
      const job = (account: string): Job => ({
        account,
        takes: account === 'ann' ? longest - draw(100) * second : minute + draw(30) * minute,
      })
      demand(lab, { ann: from, bob: from }, job, members)
      lab.runUntil(from + 2 * longest + hour)
      let repaid = Number.POSITIVE_INFINITY
      for (let at = from + minute; at <= lab.now && repaid === Number.POSITIVE_INFINITY; at += minute)
        // Rounded steps of decay, and jobs that end between two looks, count for little.
        if (lab.used('bob', from, at) >= 0.97 * lab.used('ann', from - second, at)) repaid = at - from
      expect(repaid, `seed ${seed}, longest job ${longest / minute} min`).toBeLessThanOrEqual(2 * longest)
    }
  })
})

test('the entry penalty divides members that become free at once', () => {
  for (const [sharePenalty, most] of [
    [0, 8],
    [60 * second, 4],
  ] as const) {
    const lab = new Lab({ members: plainMembers(8), rules: { queue: 'fair', sharePenalty } })
    lab.submit({ account: 'eve', count: 8, takes: minute })
    for (let i = 0; i < 8; i++) lab.submit({ account: 'ann', takes: hour })
    for (let i = 0; i < 8; i++) lab.submit({ account: 'bob', takes: hour })
    lab.runUntil(minute + second)
    const started = (account: string) => lab.runs.filter(({ job, started }) => job.account === account && started !== undefined).length
    expect(Math.max(started('ann'), started('bob'))).toBe(sharePenalty === 0 ? 4 : most)
  }
})

test('usage halves in each half-life, and survives a snapshot', () => {
  const lab = new Lab({ members: plainMembers(1), rules: { queue: 'fair', shareHalfLife: hour, sharePenalty: 0 } })
  lab.submit({ account: 'ann', takes: 30 * minute })
  lab.runUntil(30 * minute + second)
  const { usage, at, held } = lab.state.pools.get(POOL)!.accounts.get('ann')!
  expect(held).toBe(0)
  expect(at).toBeGreaterThanOrEqual(30 * minute - 2 * second)
  expect(usage).toBeGreaterThan(20 * minute)
  expect(usage).toBeLessThan(30 * minute)
})
