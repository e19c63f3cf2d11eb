import { describe, expect, test } from 'vitest'
import { barChart } from '../../../sim/replay/plot.ts'
import { bestFixed, fixedTerm, learnedTerms, oracleCost, replayTerms } from '../../../sim/replay/terms.ts'
import { parseTrace, randomFrom, type Trace } from '../../../sim/replay/trace.ts'

/** Jobs of two classes, with the columns of the real trace: most are short, and the tail is heavy. */
function syntheticTrace(count: number): Trace {
  const random = randomFrom(11)
  const lines = Array.from({ length: count }, (_, i) => {
    const short = random() < 0.6
    const seconds = short ? 5 + 10 * random() : 60 * (1 - random()) ** -0.9
    const start = i * 30
    return `job-${i},1000,1024,1,${short ? 500 : 1000},,${short ? 'BE' : 'LS'},${random() < 0.2 ? 'Failed' : 'Running'},${start},${(start + seconds).toFixed(3)},${start}`
  })
  const head = 'name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time'
  return parseTrace('synthetic', [head, ...lines].join('\n'), 7)
}

describe('a replay', () => {
  test('of a fixed ttl under the kernel costs what arithmetic says', () => {
    const trace = syntheticTrace(400)
    const best = bestFixed(trace, 1)
    expect(replayTerms(trace, 1, () => fixedTerm(best.ttl)).cost).toBeCloseTo(best.cost, 0)
  })

  test('of learned terms costs less than the best fixed ttl, and not less than an oracle', () => {
    const trace = syntheticTrace(1_500)
    const { cost } = replayTerms(trace, 1, learnedTerms(1))
    expect(cost).toBeLessThan(0.9 * bestFixed(trace, 1).cost)
    expect(cost).toBeGreaterThan(oracleCost(trace, 1))
  })

  test('of the same trace gives the same numbers', () => {
    const run = () => replayTerms(syntheticTrace(300), 10, learnedTerms(10))
    expect(run()).toEqual(run())
  })
})

describe('a trace', () => {
  test('of run times is shuffled by a fixed seed, and leaves out what is no number', () => {
    const trace = parseTrace('t', 'runtime\n1.5\n-3\nnonsense\n2\n', 7)
    expect(trace.jobs.map(({ ms }) => ms).sort()).toEqual([1_500, 2_000])
    expect(parseTrace('t', 'runtime\n1\n2\n3', 7)).toEqual(parseTrace('t', 'runtime\n1\n2\n3', 7))
  })

  test('with other columns is refused with those that are needed', () => {
    expect(() => parseTrace('t', 'a,b\n1,2', 7)).toThrow(/scheduled_time and deletion_time, or runtime/)
  })
})

test('a chart escapes names', () => {
  expect(barChart('a<b', [{ title: '"t"', bars: [{ label: 'l&', value: 2 }] }], 1)).toContain('a&lt;b')
})
