/** The profile of a Redis, from its own settings. A setting that it does not reveal counts as not set. */
import type { Profile } from '../../store.ts'
import { TRUSTED_CLOCK } from '../trusted-clock.ts'
import type { RedisArgument } from './driver.ts'
import { refusal } from './errors.ts'

export interface RedisSettings {
  /** `leasehold` for a Leasehold server, which Redis clients can connect to. */
  readonly server: string | undefined
  /** `standalone`, `cluster` or `sentinel`. */
  readonly mode: string | undefined
  /** Changes whenever Redis is started. Empty if it is not revealed. */
  readonly runId: string
  readonly role: string | undefined
  readonly primary: string
  readonly replicas: number
  readonly aof: boolean | undefined
  readonly fsync: string | undefined
  readonly syncsWhileRewriting: boolean | undefined
  readonly save: string | undefined
  readonly policy: string | undefined
  readonly maxmemory: number | undefined
}

type Send = (args: readonly RedisArgument[]) => Promise<unknown>

export async function readSettings(send: Send): Promise<RedisSettings> {
  const config = (name: string) => readConfig(send, name)
  const [info, append, rewriting, save, policy, memory] = await Promise.all([
    readInfo(send),
    config('append*'),
    config('no-appendfsync-on-rewrite'),
    config('save'),
    config('maxmemory-policy'),
    config('maxmemory'),
  ])
  const aof = append.get('appendonly') ?? { '1': 'yes', '0': 'no' }[info.get('aof_enabled') ?? '']
  const maxmemory = memory.get('maxmemory') ?? info.get('maxmemory')
  const whileRewriting = rewriting.get('no-appendfsync-on-rewrite')
  return {
    server: info.get('server'),
    mode: info.get('redis_mode'),
    runId: info.get('run_id') ?? '',
    role: info.get('role'),
    primary: info.has('master_host') ? `${info.get('master_host')}:${info.get('master_port')}` : '',
    replicas: Number(info.get('connected_slaves') ?? 0),
    aof: aof === undefined ? undefined : aof === 'yes',
    fsync: append.get('appendfsync'),
    syncsWhileRewriting: whileRewriting === undefined ? undefined : whileRewriting === 'no',
    save: save.get('save'),
    policy: policy.get('maxmemory-policy') ?? info.get('maxmemory_policy'),
    maxmemory: maxmemory === undefined ? undefined : Number(maxmemory),
  }
}

/** The profile before the settings are read. */
export const UNREAD: Profile = {
  store: 'redis',
  durable: false,
  failover: false,
  push: true,
  shared: true,
  ages: false,
  notes: ['The guarantees of this Redis are read from its settings when the store is opened.'],
}

/** `trusted`: the clock of Redis is trusted. */
export function profileOf(settings: RedisSettings, trusted: boolean): Profile {
  const { aof, fsync, syncsWhileRewriting, runId } = settings
  const durable = aof === true && fsync === 'always' && syncsWhileRewriting === true && !evicts(settings)
  return { ...UNREAD, durable, ages: trusted && runId !== '', notes: [...notes(settings), noteOnAges(settings, trusted)] }
}

/** Returns whether Redis deletes any key, the log too, when memory is short. */
function evicts({ policy, maxmemory }: RedisSettings): boolean {
  return policy?.startsWith('allkeys') === true && maxmemory !== 0
}

function noteOnAges({ runId }: RedisSettings, trusted: boolean): string {
  if (!trusted) return 'Ages are not known: Redis has only a wall clock, which may be adjusted.'
  if (runId === '') return 'clock=trusted has no effect: this Redis does not reveal its run id (INFO), so a restart would go unnoticed.'
  return `${TRUSTED_CLOCK} Redis.`
}

function notes(settings: RedisSettings): string[] {
  const { aof, fsync, syncsWhileRewriting, save, policy, replicas, role } = settings
  const all: string[] = []
  if (aof === false && (save ?? '') === '')
    all.push('appendonly no and no save: the log is gone when Redis ends. Leases are then lost, and holders are notified.')
  else if (aof === false) all.push(`appendonly no, save "${save}": a crash loses what came after the last dump, up to minutes.`)
  else if (aof === undefined || fsync === undefined)
    all.push('This Redis does not reveal its persistence settings (CONFIG, INFO): it counts as not durable.')
  else if (fsync === 'everysec') all.push('appendfsync everysec: a crash of the machine loses up to two seconds of acknowledged records.')
  else if (fsync === 'no')
    all.push('appendfsync no: a crash of the machine loses what the system had not written yet, about thirty seconds.')
  if (aof === true && fsync === 'always' && syncsWhileRewriting !== true)
    all.push('no-appendfsync-on-rewrite yes: records acknowledged while the append-only file is rewritten are not synced.')
  if (policy === undefined) all.push('It does not reveal its maxmemory-policy: only noeviction guarantees that it never evicts the log.')
  else if (evicts(settings)) all.push(`maxmemory-policy ${policy}: when memory is short Redis evicts the whole log. Use noeviction.`)
  else if (policy !== 'noeviction')
    all.push(`maxmemory-policy ${policy}: use noeviction, so that no later change of a setting lets Redis evict the log.`)
  all.push(
    replicas > 0 || role === undefined
      ? 'Replication is asynchronous: a failover can lose the last acknowledged records. Replicas that had seen them report DIVERGED.'
      : 'No replica: the loss of this machine loses the log. A replica would follow asynchronously and may lack the last records.',
  )
  return all
}

async function readInfo(send: Send): Promise<Map<string, string>> {
  const text = String((await unlessForbidden(send(['INFO']))) ?? '')
  return new Map(
    text
      .split(/\r?\n/)
      .map(line => line.split(/:(.*)/s) as [string, string])
      .filter(([name, value]) => name !== '' && value !== undefined),
  )
}

async function readConfig(send: Send, name: string): Promise<Map<string, string>> {
  const pairs = ((await unlessForbidden(send(['CONFIG', 'GET', name]))) ?? []) as unknown[]
  return new Map(Array.from({ length: pairs.length / 2 }, (_, i) => [String(pairs[2 * i]), String(pairs[2 * i + 1])]))
}

/** Hosted Redis services rename or forbid these commands: then nothing is known, which is not an error. */
async function unlessForbidden(answer: Promise<unknown>): Promise<unknown> {
  try {
    return await answer
  } catch (error) {
    if (['ERR', 'NOPERM'].includes(refusal(error) ?? '')) return undefined
    throw error
  }
}
