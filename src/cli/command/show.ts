/** `leasehold show`: the holders and waiters of a resource, or one lease. */
import type { Command } from 'commander'
import { inWords } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { LeaseView, ResourceView } from '../../lessor.ts'
import { addGlobalOptions, type Invocation, invoke } from '../invocation.ts'
import { requireValidName } from '../name.ts'
import { clean, table } from '../output.ts'
import { unitsOf, unitsTaken } from '../resource-sentences.ts'

export function show(program: Command): void {
  addGlobalOptions(program.command('show'))
    .summary('show the holders and waiters of a resource, or one lease')
    .argument('<name>', 'a resource, or the id of a lease')
    .action(async (name: string, _: unknown, self: Command) => {
      requireValidName(name)
      await invoke(self, async invocation => {
        const { revision, value } = await invocation.read({ kind: 'resource', resource: name })
        const lease =
          /^\d{1,16}$/.test(name) && idle(value) ? (await invocation.read({ kind: 'lease', lease: Number(name) })).value : undefined
        if (lease !== undefined) await showLease(invocation, lease, revision)
        else if (/^\d{12,16}$/.test(name) && idle(value))
          throw new LeaseError('NOT_FOUND', `there is no lease or resource ${name}: it has ended, or never existed`)
        else await showResource(invocation, value, revision)
      })
    })
}

function idle({ grants, queue }: ResourceView): boolean {
  return grants.length === 0 && queue.length === 0
}

async function showResource({ out, clock }: Invocation, view: ResourceView, revision: number): Promise<void> {
  if (out.json) return out.data({ ...view, revision })
  const { resource, capacity, limit, grants, queue, fence } = view
  const now = clock.wall()
  const lines = [`${clean(resource)}: ${summary(view)}`]
  if (limit !== undefined) lines.push(`permits ${limit}, ${unitsTaken(grants)} taken`)
  else if (capacity !== 1) lines.push(`capacity ${capacity}, ${unitsTaken(grants)} taken`)
  if (fence > 0) lines.push(`highest token that fence has accepted: ${fence}`)
  if (grants.length > 0)
    lines.push(
      '',
      table(
        ['HOLDER', 'TOKEN', 'LEASE', 'STATUS', 'UNITS', 'LEFT', 'HELD FOR'],
        grants.map(grant => [
          ...[grant.holder, grant.token, grant.lease, grant.status, unitsOf(grant)],
          ...[inWords(grant.remaining), inWords(Math.max(0, now - grant.since))],
        ]),
        { bold: out.colour },
      ),
    )
  if (queue.length > 0)
    lines.push(
      '',
      table(
        ['PLACE', 'WAITING', 'LEASE', 'UNITS', 'PRIORITY', 'FOR'],
        queue.map(waiter => [
          ...[waiter.position + 1, waiter.holder, waiter.lease, unitsOf(waiter), waiter.priority],
          inWords(Math.max(0, now - waiter.since)),
        ]),
        { bold: out.colour },
      ),
    )
  await out.text(lines.join('\n'))
}

export function summary({ grants, queue, coveredBy = [] }: ResourceView): string {
  const [first] = grants
  const [above] = coveredBy
  const free = above === undefined ? 'free' : `covered by ${clean(above.resource)}, which ${clean(above.holder)} holds`
  const how = first === undefined ? free : grants.every(({ status }) => status === 'frozen') ? 'frozen' : 'held'
  return queue.length === 0 ? how : `${how}, ${queue.length} waiting`
}

async function showLease({ out, clock }: Invocation, lease: LeaseView, revision: number): Promise<void> {
  if (out.json) return out.data({ ...lease, labels: Object.fromEntries(lease.labels), revision })
  const age = inWords(Math.max(0, clock.wall() - lease.since))
  const rows: [string, string][] = [
    ['lease', String(lease.lease)],
    ['holder', `${lease.holder} (incarnation ${lease.incarnation})`],
    ['status', lease.status],
    ['ttl', `${inWords(lease.ttl)}, ${inWords(lease.remaining)} left`],
    ['since', `${age} ago`],
    ...lease.grants.map((grant): [string, string] => ['holds', `${grant.resource}, token ${grant.token}, units ${unitsOf(grant)}`]),
    ...lease.wants.map((want): [string, string] => ['waits for', `${want.resource}, ${want.position} ahead of it, units ${unitsOf(want)}`]),
    ...lease.entries.map(({ key, value }): [string, string] => ['entry', `${key} = ${value}`]),
    ...lease.labels.map(([name, value]): [string, string] => ['label', `${name} = ${value}`]),
    ...(lease.parent === 0 ? [] : [['parent', String(lease.parent)] as [string, string]]),
    ...(lease.children.length === 0 ? [] : [['children', lease.children.join(', ')] as [string, string]]),
    ...(lease.recalled ? [['recalled', 'a waiter asked its holder to release it'] as [string, string]] : []),
  ]
  await out.text(rows.map(([what, value]) => `${what.padEnd(10)} ${clean(value)}`).join('\n'))
}
