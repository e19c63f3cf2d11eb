import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { hookRoute } from '../../src/guard/hook-route.ts'
import { propose } from '../../src/lessor/propose.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { rawEvent } from '../support/hook-events.ts'
import { place } from '../support/resp-place.ts'

const HERE = 'root=/r&prefix=repo/github.com/acme/app'

async function server() {
  const there = await place({ http: httpListener({ routes: [hookRoute()] }) })
  const post = async (query: string, body: unknown, headers: Record<string, string> = {}) => {
    const response = await fetch(`http://127.0.0.1:${there.port}/v1/hooks/agent?${query}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })
    return { status: response.status, answer: (await response.json()) as Record<string, unknown> }
  }
  return { there, post, [Symbol.asyncDispose]: () => there[Symbol.asyncDispose]() }
}

describe('POST /v1/hooks/agent', () => {
  test('answers each host in its form, and claims for the session of the event', async () => {
    await using here = await server()
    const { post, there } = here
    expect(await post(`host=claude&${HERE}`, rawEvent('claude-pre-edit', '/r'))).toEqual({ status: 200, answer: {} })
    expect((await there.lessor.read({ kind: 'resources', prefix: 'repo' })).value[0]!.grants[0]!.holder).toBe('claude-eb5b017405554601')
    expect((await post(`host=cursor&${HERE}`, rawEvent('cursor-pre-write', '/r'))).answer).toMatchObject({
      permission: 'deny',
      agent_message: expect.stringMatching(/held by claude-eb5b017405554601/),
    })
    expect((await post(`host=codex&${HERE}`, rawEvent('codex-pre-apply-patch', '/r'))).answer).toMatchObject({
      hookSpecificOutput: { permissionDecision: 'deny' },
    })
    await post(`host=claude&${HERE}`, rawEvent('claude-stop', '/r'))
    expect((await post(`host=cursor&${HERE}`, rawEvent('cursor-pre-write', '/r'))).answer).toEqual({ permission: 'allow' })
  })

  test('refuses what is no event, and what is too large', async () => {
    await using here = await server()
    const { post } = here
    for (const body of ['{}', '[]', '1', 'x']) expect((await post('', body)).status).toBe(400)
    expect((await post('host=emacs', rawEvent('claude-pre-edit', '/r'))).status).toBe(400)
    expect((await post('nonsense=1', rawEvent('claude-pre-edit', '/r'))).status).toBe(400)
    expect((await post('', { ...rawEvent('claude-pre-edit', '/r'), x: 'x'.repeat(5 << 20) })).status).toBe(413)
  })

  test('needs a key that may acquire the name, where keys are required; otherwise it warns, or denies if it is to fail closed', async () => {
    await using here = await server()
    const { post, there } = here
    const allow = [
      { verb: 'acquire', prefix: 'repo/github.com/other' },
      { verb: 'read', prefix: '' },
    ] as const
    await propose(there.lessor, { kind: 'key', name: 'k', hash: hashSecret('k'), allow })
    await expect.poll(() => there.server.guarded.access.keyRequired).toBe(true)
    const event = rawEvent('claude-pre-edit', '/r')
    expect((await post(HERE, event)).status).toBe(401)
    const key = { authorization: 'Bearer k' }
    const warned = await post(HERE, event, key)
    expect(warned.answer).toMatchObject({ systemMessage: expect.stringMatching(/THIS EDIT IS NOT GUARDED/) })
    expect((await post(`${HERE}&failClosed=true`, event, key)).answer).toMatchObject({ hookSpecificOutput: { permissionDecision: 'deny' } })
    expect((await there.lessor.read({ kind: 'resources', prefix: 'repo' })).value).toEqual([])
  })

  test('warns about an edit whose path it does not recognise, and denies it if it is to fail closed', async () => {
    await using here = await server()
    const event = { ...rawEvent('claude-pre-edit', '/r'), tool_input: { filename: '/r/src/server.ts' } }
    expect((await here.post(HERE, event)).answer).toMatchObject({ systemMessage: expect.stringMatching(/NOT GUARDED.*names no file/) })
    expect((await here.post(`${HERE}&failClosed=true`, event)).answer).toMatchObject({
      hookSpecificOutput: { permissionDecision: 'deny', permissionDecisionReason: expect.stringMatching(/names no file/) },
    })
  })

  test('looks at files only for a key that may claim a path of some repository, and a pipe in the way holds nothing up', async () => {
    await using here = await server()
    const { post, there } = here
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-hook-'))
    try {
      execFileSync('mkfifo', [join(folder, '.git')])
      const keys = { weak: 'nothing/here', strong: 'repo' }
      for (const [name, prefix] of Object.entries(keys))
        await propose(there.lessor, { kind: 'key', name, hash: hashSecret(name), allow: [{ verb: 'acquire', prefix }] })
      await expect.poll(() => there.server.guarded.access.hasKeys).toBe(true)
      const edit = (key: string) =>
        post('failClosed=true&answer=decision', rawEvent('claude-pre-edit', folder), { authorization: `Bearer ${key}` })
      expect((await edit('weak')).answer).toMatchObject({ allow: false, reason: expect.stringContaining('may not acquire repo') })
      expect((await edit('strong')).answer).toEqual({ allow: true })
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })

  test('ends an agent of this machine whose process is gone, at the next look', async () => {
    await using here = await server()
    const { post, there } = here
    const { hostname } = await import('node:os')
    await post(`pid=999999999&started=1&machine=${hostname()}&${HERE}`, rawEvent('claude-pre-edit', '/r'))
    await expect.poll(async () => (await there.lessor.read({ kind: 'resources', prefix: 'repo' })).value.length).toBe(0)
  })
})
