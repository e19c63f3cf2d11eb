/** Signals of Linux, as tests wait for them. */
import { readFileSync } from 'node:fs'
import { expect } from 'vitest'

/** Resolves when the process has no signal that it has not handled: the kernel merges a second one of the same kind with it. */
export async function hasHandledSignals(pid: number): Promise<void> {
  const pending = () => /^ShdPnd:\s*(\w+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]
  await expect.poll(pending, { interval: 1 }).toMatch(/^0+$/)
}
