/** What operators do from the dashboard: each action says what it will do, asks once, does it, and leaves a line in the audit log. */
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { launch, openTab, type Tab } from '../support/dashboard-browser.ts'
import { acquire, granted } from '../support/dashboard-world.ts'
import { describeWith } from '../support/engine.ts'
import { type World, world } from '../support/http-world.ts'

describeWith([{ program: 'chromium', packages: ['chromium'] }], 'an action of the dashboard', () => {
  let browser: Browser
  let here: World
  let tab: Tab
  let page: Page

  beforeAll(async () => {
    ;[browser, here] = await Promise.all([launch(), world()])
    const key = await here.key('root', [{ verb: 'admin', prefix: '' }])
    tab = await openTab(browser, `${here.url}/`)
    page = tab.page
    await page.locator('#key').fill(key)
    await page.locator('#key-form button').click()
    await page.locator('#status[data-state=live]').waitFor()
  })
  afterAll(async () => {
    await browser?.close()
    await here?.[Symbol.asyncDispose]()
  })
  beforeEach(() => {
    here.audited.length = 0
  })

  const open = (path: string) => page.goto(`${here.url}/#/${path}`)
  const press = (text: string) => page.locator('main').getByRole('button', { name: text, exact: true }).first().click()
  const dialog = () => page.locator('dialog.asking')
  const says = () => dialog().locator('.says').innerText()
  const confirm = async () => {
    await dialog().locator('button[type=submit]').click()
    await dialog().waitFor({ state: 'detached' })
  }
  const actions = () => here.audited.map(record => JSON.stringify(record)).join('\n')
  const holdersOf = async (resource: string) => {
    const { value } = await here.lessor.read({ kind: 'resource', resource })
    return value.grants.map(({ holder, status }) => `${holder} ${status}`)
  }

  test('releases a lease, and names the waiter that gets it', async () => {
    const lease = await granted(here, acquire('ci-7', ['db/main']))
    await granted(here, acquire('etl-1', ['db/main'], { wait: true }))
    await open(`lease/${lease}`)
    await press('Release')
    await expect.poll(says).toMatch(/ci-7/)
    await dialog().locator('.next', { hasText: 'etl-1' }).waitFor()
    expect(await holdersOf('db/main')).toEqual(['ci-7 live'])
    // It asks once, and a cancelled action does nothing.
    await dialog().getByRole('button', { name: 'Cancel' }).click()
    await dialog().waitFor({ state: 'detached' })
    expect(await holdersOf('db/main')).toEqual(['ci-7 live'])
    await press('Release')
    await expect.poll(says).toMatch(/ci-7/)
    await confirm()
    await page.locator('.done-lines', { hasText: `Released lease ${lease}` }).waitFor()
    const { value } = await here.lessor.read({ kind: 'lease', lease })
    expect(value === undefined || value.status === 'frozen').toBe(true)
    expect(actions()).toContain('release')
  })

  test('breaks a resource after a delay', async () => {
    const lease = await granted(here, acquire('ci-8', ['db/broken'], { ttl: 3_600_000 }))
    await open('resource/db/broken')
    await press('Break')
    await expect.poll(says).toMatch(/ci-8/)
    await dialog().locator('#field-after').fill('soon')
    await dialog().locator('button[type=submit]').click()
    await dialog().locator('[role=alert]', { hasText: 'not a length of time' }).waitFor()
    await dialog().locator('#field-after').fill('5s')
    await confirm()
    expect(await holdersOf('db/broken')).toEqual(['ci-8 live'])
    await here.clock.advance(6_000)
    expect((await here.lessor.read({ kind: 'lease', lease })).value?.status).not.toBe('live')
    expect(actions()).toContain('break')
  })

  test('revokes a subtree', async () => {
    const session = await granted(here, acquire('ann', []))
    for (const name of ['documents/1', 'documents/2']) await granted(here, acquire('ann', [name], { parent: session }))
    await open(`lease/${session}`)
    await press('Revoke with all below')
    await expect.poll(says).toMatch(/3 leases/)
    await dialog().locator('#field-force').check()
    await confirm()
    // Below a lease that was ended at once, the others are frozen until their holder has stopped.
    for (const name of ['documents/1', 'documents/2']) expect(await holdersOf(name)).not.toContain('ann live')
    expect((await here.lessor.read({ kind: 'lease', lease: session })).value).toBeUndefined()
    expect(actions()).toContain('revoke')
  })

  test('asks the holder for a resource, with a message', async () => {
    await granted(here, acquire('ci-9', ['db/asked'], { ttl: 3_600_000 }))
    await open('resource/db/asked')
    await press('Ask for it')
    await dialog().locator('#field-by').fill('ann: please finish soon')
    await confirm()
    await page.locator('.events li[data-type=recalled]', { hasText: 'ann: please finish soon' }).waitFor()
    expect(actions()).toContain('recall')
  })

  test('drains an instance, puts it into maintenance and back into service, and deregisters it', async () => {
    await here.ask('PUT', '/v1/services/api/api-1', { address: '10.0.0.1:80', ttl: '1h' }, { authorization: `Bearer secret-of-root` })
    const status = async () => {
      const { json } = await here.ask('GET', '/v1/services/api/api-1', undefined, { authorization: 'Bearer secret-of-root' })
      return (json as { status?: string }).status
    }
    await open('services/api/api-1')
    for (const [button, expected] of [
      ['Drain', 'draining'],
      ['Back into service', 'passing'],
      ['Maintenance', 'maintenance'],
    ]) {
      await press(button!)
      expect(await says()).toContain('api/api-1')
      await confirm()
      expect(await status()).toBe(expected)
      await page.locator('.title .tag', { hasText: expected! }).waitFor()
    }
    await press('Deregister')
    await confirm()
    expect(await status()).toBeUndefined()
  })

  test('extends a lease of a pool, and shows why the server refuses', async () => {
    const entries = [{ key: 'pool/gpus/0', value: JSON.stringify({ labels: {}, units: 1 }) }]
    await granted(here, acquire('host', [], { ttl: 3_600_000, entries }))
    const lease = await granted(here, acquire('ann', [], { ttl: 600_000, maxLife: 600_000, pool: { pool: 'gpus' } }))
    await open(`lease/${lease}`)
    await press('Extend')
    await confirm()
    expect(actions()).toContain('extend')
    await granted(here, acquire('bob', [], { wait: true, pool: { pool: 'gpus' } }))
    await press('Extend')
    await dialog().locator('button[type=submit]').click()
    await dialog().locator('[role=alert]').waitFor()
    await page.keyboard.press('Escape')
    await dialog().waitFor({ state: 'detached' })
  })

  test('sets, changes and removes a policy', async () => {
    const rules = async () => {
      const { value } = await here.lessor.read({ kind: 'policies' })
      return value.find(({ prefix }) => prefix === 'limited')?.rules
    }
    await open('policies')
    await press('Set a policy')
    await dialog().locator('#field-prefix').fill('limited')
    await dialog().locator('#field-rules').fill('capacity=3\nttlMax=5m')
    await confirm()
    expect(await rules()).toEqual({ capacity: 3, ttlMax: 300_000 })
    await page.locator('.policies tr', { hasText: 'limited' }).getByRole('button', { name: 'change' }).click()
    await dialog().locator('#field-rules').fill('capacity=nothing')
    await dialog().locator('button[type=submit]').click()
    await dialog().locator('[role=alert]', { hasText: 'capacity' }).waitFor()
    await dialog().locator('#field-rules').fill('capacity=4')
    await confirm()
    expect(await rules()).toEqual({ capacity: 4 })
    await page.locator('.policies tr', { hasText: 'limited' }).getByRole('button', { name: 'remove' }).click()
    await confirm()
    expect(await rules()).toBeUndefined()
    expect(actions()).toContain('policy')
  })

  test('revokes every lease of a holder, and every lease under a prefix', async () => {
    for (const name of ['mine/1', 'mine/2']) await granted(here, acquire('mob', [name]))
    await open('leases?holder=mob')
    await press('Revoke all of mob')
    await expect.poll(says).toMatch(/2 leases/)
    await dialog().locator('#field-force').check()
    await confirm()
    expect(await holdersOf('mine/1')).toEqual([])
    await granted(here, acquire('ann', ['mine/3']))
    await open('resources?prefix=mine')
    await press('Revoke all under mine')
    await expect.poll(says).toMatch(/ann|1 lease/)
    await dialog().locator('#field-force').check()
    await confirm()
    expect(await holdersOf('mine/3')).toEqual([])
  })
})
