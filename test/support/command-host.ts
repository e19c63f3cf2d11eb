/** Runs short commands of the built command line in one process that stays, for tests whose subject is not the process. */
import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { EVENT_TIMEOUT } from './bounds.ts'

export interface Answered {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

const program = fileURLToPath(new URL('./command-host.mjs', import.meta.url))
/** Ends the output of a command. The program prints no control characters. */
const END = '\0'

let host: ChildProcess | undefined
let last: Promise<unknown> = Promise.resolve()
process.once('exit', () => host?.kill('SIGKILL'))

/** Runs the command after those before it have ended. */
export function runInHost(args: readonly string[], env: Readonly<Record<string, string | undefined>>, cwd: string): Promise<Answered> {
  const answer = last.then(() => answered(started(), { args, env, cwd, end: END }))
  last = answer.catch(() => {})
  return answer
}

function started(): ChildProcess {
  if (host !== undefined) return host
  const child = fork(program, { execArgv: [], stdio: ['ignore', 'pipe', 'pipe', 'ipc'], detached: true })
  child.once('exit', () => {
    if (host === child) host = undefined
  })
  // A test worker that has no more tests must end.
  child.unref()
  child.channel?.unref()
  for (const stream of [child.stdout!, child.stderr!]) {
    stream.setEncoding('utf8')
    ;(stream as unknown as { unref(): void }).unref()
  }
  host = child
  return child
}

function answered(child: ChildProcess, request: object): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const texts = { stdout: '', stderr: '' }
    let code: number | undefined
    const check = () => {
      if (code === undefined || !texts.stdout.endsWith(END) || !texts.stderr.endsWith(END)) return
      stop()
      resolve({ code, stdout: texts.stdout.slice(0, -END.length), stderr: texts.stderr.slice(0, -END.length) })
    }
    const onStdout = (text: string) => {
      texts.stdout += text
      check()
    }
    const onStderr = (text: string) => {
      texts.stderr += text
      check()
    }
    const onCode = (told: number) => {
      code = told
      check()
    }
    const fail = () => {
      stop()
      child.kill('SIGKILL')
      if (host === child) host = undefined
      reject(new Error(`no end of ${JSON.stringify(request)}: ${texts.stdout}${texts.stderr}`))
    }
    const overdue = setTimeout(fail, EVENT_TIMEOUT)
    const stop = () => {
      clearTimeout(overdue)
      child.stdout!.off('data', onStdout)
      child.stderr!.off('data', onStderr)
      child.off('message', onCode)
      child.off('exit', fail)
    }
    child.stdout!.on('data', onStdout)
    child.stderr!.on('data', onStderr)
    child.on('message', onCode)
    child.once('exit', fail)
    child.send(request)
  })
}
