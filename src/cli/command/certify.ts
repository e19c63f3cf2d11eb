/** `leasehold certify`: measures what an engine really guarantees. */
import type { Command } from 'commander'
import { keepAlive, systemClock } from '../../clock.ts'
import { count, type Findings, objections, rows } from '../certify/verdict.ts'
import { EXIT } from '../exit.ts'
import { addGlobalOptions, commandInput, listenForInterrupt } from '../invocation.ts'
import { clean, type Output } from '../output.ts'

export function certify(program: Command): void {
  addGlobalOptions(program.command('certify'), ['json'])
    .summary('measure what your engine really guarantees')
    .description(
      'Runs the store suite, measurements and faults on its own logs, whose names begin with certify-, and removes them afterwards. Touches nothing else on the engine. Exit code 0: certified; 1: not certified; 69: the engine cannot be reached.',
    )
    .argument('<url>', 'the store: file:PATH, postgres://, redis:// or etcd://')
    .option('--restart <command>', 'a command that restarts your engine; runs once, while entries are appended')
    .action(async (url: string, { restart }: { readonly restart?: string }, self: Command) => {
      const { out } = commandInput(self)
      const letExit = keepAlive(systemClock)
      const interrupt = listenForInterrupt()
      try {
        const { examine } = await import('../certify/examine.ts') // loads the store suite, which no other command needs
        const findings = await examine(url, { out, restart, clock: systemClock, signal: interrupt.signal })
        const against = objections(findings)
        await print(out, findings, against)
        if (against.length > 0) process.exitCode = EXIT.failed
      } finally {
        interrupt.stop()
        letExit()
      }
    })
}

async function print(out: Output, findings: Findings, against: readonly string[]): Promise<void> {
  const { profile, sentences, measured, faults, left } = findings
  const certified = against.length === 0
  if (out.json) {
    const durable = { says: profile.durable, measured: faults.restart.result }
    return out.data({
      ...{ certified, store: profile.store, profile, measured: { durable, ...measured } },
      ...{ sentences: count(sentences), faults, objections: against, left },
    })
  }
  await out.table(['PROMISE', 'THE STORE SAYS', 'MEASURED'], rows(findings))
  for (const note of profile.notes) await out.text(`note: ${clean(note)}`)
  for (const { name, result, reason } of sentences) if (result === 'not tried') await out.text(clean(`not tried: ${name} (${reason})`))
  for (const objection of against) await out.text(clean(`against it: ${objection}`))
  await out.text(certified ? 'certified' : 'NOT certified')
}
