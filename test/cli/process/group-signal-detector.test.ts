import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { GroupSignalDetector } from '../../../src/cli/process/group-signal-detector.ts'
import { listProcesses } from '../../../src/cli/process/process-table.ts'
import type { Forwarded } from '../../../src/cli/process/signal-forwarder.ts'
import { hasHandledSignals } from '../../support/signals.ts'

/** A detector, and the shell that it has started. */
async function started(): Promise<{ readonly detector: GroupSignalDetector; readonly shell: number }> {
  const before = new Set(listProcesses().map(({ pid }) => pid))
  const detector = await GroupSignalDetector.start()
  onTestFinished(() => detector.stop())
  return { detector, shell: listProcesses().find(({ pid, parent }) => parent === process.pid && !before.has(pid))!.pid }
}

test('a signal that arrives while the shell answers for another one is known too', async () => {
  const { detector, shell } = await started()
  const names = ['SIGUSR1', 'SIGUSR2', 'SIGWINCH', 'SIGHUP', 'SIGTERM'] as const satisfies readonly Forwarded[]
  const receive = (name: Forwarded) => {
    process.kill(shell, name)
    return detector.received(name)
  }
  for (let i = 0; i < 100; i++) {
    const first = receive(names[i % names.length]!)
    // The question for the first signal is on its way after 20 ms.
    await sleep(20)
    const later = performance.now() + Math.random()
    while (performance.now() < later);
    expect(await Promise.all([first, receive(names[(i + 2) % names.length]!)])).toEqual([true, true])
  }
  expect(await detector.received('SIGINT')).toBe(false)
})

test.skipIf(process.platform !== 'linux')('the same signal is known twice if it came twice, and not a third time', async () => {
  const { detector, shell } = await started()
  for (let i = 0; i < 2; i++) {
    process.kill(shell, 'SIGINT')
    await hasHandledSignals(shell)
  }
  const received = [detector.received('SIGINT'), detector.received('SIGINT'), detector.received('SIGINT')]
  expect(await Promise.all(received)).toEqual([true, true, false])
})
