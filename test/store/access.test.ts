/** Access to an engine that is withdrawn for a while: a password is changed, a right is taken away. Leases live on, and every replica continues afterwards. */
import pg from 'pg'
import { createClient } from 'redis'
import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import { describeEngine, engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'

/** `refused`: the reason that a caller gets. */
async function survives(url: string, ways: readonly { refused: string; withdraw(): Promise<unknown>; giveBack(): Promise<unknown> }[]) {
  await using leases = await connect(url, { holder: 'one' })
  await using lease = await leases.acquire('kept', { ttl: '10m' })
  for (const { refused, withdraw, giveBack } of ways) {
    await withdraw()
    // A connection that was authenticated before may serve the first call.
    await eventually(async () =>
      expect(await leases.acquire('x', { ttl: '10m', wait: '1s' }).then(String, error => error)).toMatchObject({
        code: 'UNAVAILABLE',
        reason: refused,
      }),
    )
    expect(lease.held).toBe(true)
    await giveBack()
    const again = await leases.acquire('y', { ttl: '10m', wait: '2m' })
    await again.release()
  }
  expect(lease.held).toBe(true)
}

describeEngine('postgres', 'access that is withdrawn', () => {
  test('a changed password, a role that may not log in, and a missing right cost no lease', async () => {
    await using server = await engine('postgres')
    const dba = new pg.Client({ connectionString: server.url })
    await dba.connect()
    try {
      await dba.query(`create role app login password 'one'; grant create on database postgres to app`)
      await dba.query(`do $$ begin execute format('copy (select unnest(array[%L, %L])) to %L',
        'host all app 127.0.0.1/32 scram-sha-256', 'host all all 127.0.0.1/32 trust', current_setting('hba_file')); end $$`)
      await dba.query('select pg_reload_conf()')
      const disconnect = () => dba.query(`select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'`)
      await survives(server.url.replace('postgres@', 'app:one@'), [
        {
          refused: 'credentials',
          withdraw: async () => [await dba.query(`alter role app password 'two'`), await disconnect()],
          giveBack: () => dba.query(`alter role app password 'one'`),
        },
        {
          refused: 'credentials',
          withdraw: async () => [await dba.query('alter role app nologin'), await disconnect()],
          giveBack: () => dba.query('alter role app login'),
        },
        {
          refused: 'permission',
          withdraw: () => dba.query('alter table leasehold.log owner to postgres'),
          giveBack: () => dba.query('alter table leasehold.log owner to app'),
        },
      ])
    } finally {
      await dba.end()
    }
  })
})

describeEngine('redis', 'access that is withdrawn', () => {
  test('a changed password, a deleted user and a missing right cost no lease', async () => {
    await using server = await engine('redis')
    const operator = createClient({ url: server.url, RESP: 2 })
    operator.on('error', () => {})
    await operator.connect()
    try {
      const user = (...rules: string[]) => operator.sendCommand(['ACL', 'SETUSER', 'app', ...rules])
      const all = ['reset', 'on', '>one', '~*', '+@all']
      await user(...all)
      await survives(server.url.replace('redis://', 'redis://app:one@'), [
        {
          refused: 'permission',
          withdraw: async () => [await user('resetpass', '>two'), await operator.sendCommand(['CLIENT', 'KILL', 'USER', 'app'])],
          giveBack: () => user(...all),
        },
        {
          refused: 'permission',
          withdraw: () => operator.sendCommand(['ACL', 'DELUSER', 'app']),
          giveBack: () => user(...all),
        },
        { refused: 'permission', withdraw: () => user('-xadd'), giveBack: () => user(...all) },
      ])
    } finally {
      operator.destroy()
    }
  })
})

describeEngine('etcd', 'access that is withdrawn', () => {
  test('a changed password, a deleted user and a missing role cost no lease', async () => {
    await using server = await engine('etcd')
    let token: string | undefined
    const ask = async (path: string, body: object): Promise<{ token?: string }> => {
      const headers = token === undefined ? {} : { authorization: token }
      const response = await fetch(`http://127.0.0.1:${server.port}/v3/auth/${path}`, {
        method: 'POST',
        headers,
        body: JSON.stringify(body),
      })
      if (!response.ok) throw new Error(`${path}: ${await response.text()}`)
      return (await response.json()) as { token?: string }
    }
    // A change of users ends every token.
    const asRoot = async (path: string, body: object) => {
      token = undefined
      token = (await ask('authenticate', { name: 'root', password: 'root' })).token
      return ask(path, body)
    }
    for (const [path, body] of [
      ['user/add', { name: 'root', password: 'root' }],
      ['role/add', { name: 'root' }],
      ['user/grant', { user: 'root', role: 'root' }],
      ['user/add', { name: 'app', password: 'one' }],
      ['role/add', { name: 'leases' }],
      ['role/grant', { name: 'leases', perm: { permType: 'READWRITE', key: base64('leasehold:'), range_end: base64('leasehold;') } }],
      ['user/grant', { user: 'app', role: 'leases' }],
      ['enable', {}],
    ] as const)
      await ask(path, body)
    await survives(`etcd://app:one@127.0.0.1:${server.port}`, [
      {
        refused: 'password',
        withdraw: () => asRoot('user/changepw', { name: 'app', password: 'two' }),
        giveBack: () => asRoot('user/changepw', { name: 'app', password: 'one' }),
      },
      {
        refused: 'password',
        withdraw: () => asRoot('user/delete', { name: 'app' }),
        giveBack: async () => [
          await asRoot('user/add', { name: 'app', password: 'one' }),
          await asRoot('user/grant', { user: 'app', role: 'leases' }),
        ],
      },
      {
        refused: 'permission',
        withdraw: () => asRoot('user/revoke', { name: 'app', role: 'leases' }),
        giveBack: () => asRoot('user/grant', { user: 'app', role: 'leases' }),
      },
    ])
  })
})

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}
