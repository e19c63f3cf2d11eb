/** Runs a program as a health check: no shell, an empty environment, limited time and output. Its output is not stored or shown. */
import { execFile } from 'node:child_process'
import type { CheckResult } from '../../registry/entry.ts'

const MAX_OUTPUT = 4_096

/** Exit code 0 is passing, 1 a warning, any other critical. */
export function runCheckCommand(
  [file = '', ...args]: readonly string[],
  { signal, timeout }: { readonly signal: AbortSignal; readonly timeout: number },
): Promise<CheckResult> {
  return new Promise(resolve => {
    const stop = () => {
      child.kill('SIGKILL')
      // Children of the command may keep its output open. Do not wait for them.
      child.stdout?.destroy()
      child.stderr?.destroy()
    }
    const child = execFile(
      file,
      args,
      { env: {}, shell: false, timeout, killSignal: 'SIGKILL', maxBuffer: MAX_OUTPUT, windowsHide: true },
      error => {
        signal.removeEventListener('abort', stop)
        if (error === null) return resolve({ status: 'passing' })
        const { code, killed } = error as { code?: number | string; killed?: boolean }
        if (killed === true)
          return resolve({ status: 'critical', reason: `the command took longer than ${timeout} ms, or its output was too long` })
        resolve({ status: code === 1 ? 'warning' : 'critical', reason: `the command ended with ${String(code)}` })
      },
    )
    child.stdin?.end()
    signal.addEventListener('abort', stop, { once: true })
  })
}
