import type { Command } from 'commander'
import { keepAlive, systemClock } from '../../clock.ts'
import { count, type Findings, objections, rows } from '../certify/verdict.ts'
import { EXIT } from '../exit.ts'
import { addGlobalOptions, commandInput, listenForInterrupt } from '../invocation.ts'
import { clean, type Output } from '../output.ts'

export function certify(program: Command): void {
  addGlobalOptions(program.command('certify'), ['json'])
    .summary('measure what an engine of yours really promises')
    .description(
      'Runs the store suite, measurements and faults on logs of its own, whose names begin with certify-, and takes them away again. Nothing else on the engine is touched. Exit code 0: certified; 1: not; 69: it could not be reached.',
    )
    .argument('<url>', 'the store: file:PATH, postgres://, redis:// or etcd://')
    .option('--restart <command>', 'what restarts your engine: run once, while entries are appended')
    .action(async (url: string, { restart }: { readonly restart?: string }, self: Command) => {
      const { out } = commandInput(self)
      const stay = keepAlive(systemClock)
      const interrupt = listenForInterrupt()
      try {
        const { examine } = await import('../certify/examine.ts') // a suite that no other command needs
        const findings = await examine(url, { out, restart, clock: systemClock, signal: interrupt.signal })
        const against = objections(findings)
        await print(out, findings, against)
        if (against.length > 0) process.exitCode = EXIT.failed
      } finally {
        interrupt.stop()
        stay()
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
