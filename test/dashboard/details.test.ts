/** Details of the dashboard's views that depend on what the server tells about a lease or an instance. */
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Granted } from '../../src/kernel/outcome.ts'
import { keepRun } from '../../src/lessor/kept-runs.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Place } from '../support/cli.ts'
import { launch, openTab } from '../support/dashboard-browser.ts'
import { acquire, granted } from '../support/dashboard-world.ts'
import { describeWith } from '../support/engine.ts'
import { world } from '../support/http-world.ts'

describeWith([{ program: 'chromium', packages: ['chromium'] }], 'the dashboard', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await launch()
  })
  afterAll(() => browser?.close())

  test('shows until when a claim lasts at most, and how long the agent expected to need it', async () => {
    await using here = await world()
    const session = await granted(here, acquire('planner', ['agents/planner'], { ttl: 3_600_000, labels: [['kind', 'agent']] }))
    const labels = [
      ['kind', 'claim'],
      ['expect', '600000'],
    ] as const
    await granted(here, acquire('planner', ['repo/a.ts'], { ttl: 3_600_000, maxLife: 14_400_000, parent: session, labels }))
    await here.clock.advance(60_000)
    await using tab = await openTab(browser, `${here.url}/#/claims`)
    const claim = tab.page.locator('.agent li', { hasText: 'repo/a.ts' })
    await expect.poll(() => claim.innerText()).toMatch(/1 min( \d s)? of the 10 min it expected/)
    await expect.poll(() => claim.innerText()).toMatch(/cap: 3 h (58|59) min at most/)
  })

  test('shows what a claim of a folder covers, and what waits for it, above and below', async () => {
    await using here = await world()
    const term = { ttl: 3_600_000, covers: true } as const
    const session = async (name: string) =>
      granted(here, acquire(name, [`agents/${name}`], { ttl: 3_600_000, labels: [['kind', 'agent']] }))
    const claim = async (name: string, parent: number, path: string, wait = false) =>
      granted(here, acquire(name, [`repo/${path}`], { ...term, parent, labels: [['kind', 'claim']], ...(wait && { wait }) }))
    const [ann, bob, eve] = [await session('ann'), await session('bob'), await session('eve')]
    await claim('ann', ann, 'lib')
    await claim('bob', bob, 'lib/c.ts', true)
    await claim('ann', ann, 'src/a.ts')
    await claim('bob', bob, 'src', true)
    await claim('eve', eve, 'src/b.ts', true)
    await using tab = await openTab(browser, `${here.url}/#/claims`)
    const { page } = tab
    const lineOf = (holder: string, name: string) => page.locator(`[aria-label="Agent ${holder}"] li`, { hasText: name })
    await expect.poll(() => lineOf('ann', 'repo/lib').innerText()).toContain('covers')
    await expect.poll(() => lineOf('bob', 'repo/lib/c.ts').innerText()).toContain('behind ann, who holds repo/lib with all names below it')
    await expect.poll(() => lineOf('bob', 'behind ann, who holds repo/src/a.ts').count()).toBe(1)
    await expect
      .poll(() => lineOf('eve', 'repo/src/b.ts').innerText())
      .toContain('behind bob, who waits for repo/src with all names below it')
    const main = async (name: string) => {
      await page.goto(`${here.url}/#/resource/repo/${name}`)
      await page.locator('main h1', { hasText: `repo/${name}` }).waitFor()
      return () => page.locator('main').innerText()
    }
    const covered = await main('lib/c.ts')
    await expect.poll(covered).toContain('by its claim of repo/lib with all names below it')
    expect(await covered()).toContain('next, after ann, who holds repo/lib with all names below it')
    await expect.poll(await main('src')).toContain('next, after ann, who holds repo/src/a.ts')
    const queued = await main('src/b.ts')
    await expect.poll(queued).toContain('A request for it waits behind bob, who waits for repo/src with all names below it.')
    expect(await queued()).toContain('next, after bob, who waits for repo/src with all names below it')
    expect(tab.errors).toEqual([])
  })

  test('shows the penalty of an instance that came and went, and that it is suppressed', async () => {
    await using here = await world()
    await using tab = await openTab(browser, `${here.url}/#/services/search/flaky-1`)
    const lapse = async () => {
      await here.ask('PUT', '/v1/services/search/flaky-1', { address: '10.0.2.1:80', ttl: '2s', grace: '0s' })
      await here.clock.advance(6_000)
    }
    await lapse()
    await here.ask('PUT', '/v1/services/search/flaky-1', { address: '10.0.2.1:80', ttl: '1h' })
    const penalty = async () => {
      const { json } = await here.ask('GET', '/v1/entries?prefix=services/search/flaky-1')
      return json.entries[0].flap as { penalty: number; suppress: number; reuse: number }
    }
    const once = await penalty()
    expect(once.penalty).toBeGreaterThan(0)
    const fact = tab.page.locator('.facts div', { hasText: 'flapping' })
    await expect.poll(() => fact.innerText()).toContain(`suppressed above ${once.suppress.toLocaleString('en-US')}`)
    for (let i = 0; i < 4; i++) {
      await here.ask('DELETE', '/v1/services/search/flaky-1')
      await lapse()
    }
    await here.ask('PUT', '/v1/services/search/flaky-1', { address: '10.0.2.1:80', ttl: '1h' })
    expect((await penalty()).penalty).toBeGreaterThan(once.suppress)
    await expect.poll(() => fact.innerText()).toContain(`suppressed, and listed again at ${once.reuse.toLocaleString('en-US')}`)
  })

  test('shows how the commands of past holders ended, and says which have failed', async () => {
    await using here = await world()
    await using place = new Place()
    const run = (...command: string[]) => place.run(['run', 'jobs/nightly', '--store', here.url, '--ttl', '1h', '--', ...command])
    expect((await run('true')).code).toBe(0)
    await using tab = await openTab(browser, `${here.url}/#/resource/jobs/nightly`)
    const { page, errors } = tab
    const rows = page.locator('.past tbody tr')
    await rows.filter({ hasText: /exit 0\s*ran \d+(\.\d+)? m?s\s*true/ }).waitFor()
    expect(await page.locator('.runs').innerText()).toBe('None of the last 1 runs failed.')
    // The page learns of the exit code by the events of its entry, and does not wait for the next regular read.
    expect((await run('sh', '-c', 'exit 3')).code).toBe(3)
    const failed = rows.filter({ hasText: '✗ failed, exit 3' })
    await failed.waitFor()
    expect(await failed.innerText()).toMatch(/ran \d+(\.\d+)? m?s\s*sh/)
    expect(await rows.first().innerText()).toBe(await failed.innerText())
    await page.locator('.timeline li[data-failed=true]', { hasText: 'exit 3' }).waitFor()
    expect((await run('sh', '-c', 'kill -9 $$')).code).toBe(137)
    await rows.filter({ hasText: '✗ failed, exit 137' }).getByTitle('ended by signal KILL').waitFor()
    await expect
      .poll(() => page.locator('.runs').innerText())
      .toMatch(/^2 of the last 3 runs failed, the last one \d+ m?s ago\. A run usually takes/)
    // The page may ask for a lease that has ended meanwhile, which Chromium reports as an error.
    expect(errors.filter(text => !text.includes('410 (Gone)'))).toEqual([])
  })

  test('shows the newest runs of very many first, and more when asked', async () => {
    await using here = await world()
    for (let i = 0; i < 45; i++) {
      const { lease, tokens } = (await propose(here.lessor, acquire(`ci-${i}`, ['jobs/often']))) as Granted
      await here.clock.advance(1_000)
      await propose(here.lessor, { kind: 'release', lease })
      const until = here.clock.wall()
      const run = {
        lease,
        holder: `ci-${i}`,
        since: until - 1_000,
        until,
        cause: 'released',
        exit: i % 9 === 0 ? 1 : 0,
        ran: 1_000,
        command: 'make',
      }
      expect(await keepRun(here.lessor, { 'jobs/often': tokens[0]! }, run)).toBe('kept')
    }
    await using tab = await openTab(browser, `${here.url}/#/resource/jobs/often`)
    const rows = tab.page.locator('.past tbody tr')
    await rows.filter({ hasText: 'ci-44' }).waitFor()
    expect(await rows.count()).toBe(20)
    expect(await tab.page.locator('.runs').innerText()).toContain('5 of the last 45 runs failed')
    await tab.page.getByRole('button', { name: 'show 20 more of 45' }).click()
    await tab.page.getByRole('button', { name: 'show 5 more of 45' }).click()
    expect(await rows.count()).toBe(45)
    expect(await rows.last().innerText()).toContain('✗ failed, exit 1')
  })

  test('shows every tree of leases, in pages, and how many leases end with each', async () => {
    await using here = await world()
    for (let i = 0; i < 30; i++) {
      const session = await granted(here, acquire(`user-${i}`, []))
      const step = await granted(here, acquire(`user-${i}`, [`steps/${i}`], { parent: session }))
      await granted(here, acquire(`user-${i}`, [`steps/${i}/part`], { parent: step }))
      await here.clock.advance(10)
    }
    await using tab = await openTab(browser, `${here.url}/#/sessions`)
    const { page } = tab
    await page.locator('.tree', { hasText: 'user-29' }).waitFor()
    expect(await page.locator('.tree').count()).toBe(25)
    expect(await page.locator('.tree').first().locator('button.link').allInnerTexts()).toEqual(['end all 3', 'end all 2', 'end'])
    await page.getByRole('button', { name: 'Older' }).click()
    await page.locator('.tree', { hasText: 'user-0' }).first().waitFor()
    await expect.poll(() => page.locator('.tree').count()).toBe(5)
    expect(page.url()).toContain('page=1')
    expect(await page.getByRole('button', { name: 'Older' }).isDisabled()).toBe(true)
  })

  test('offers to release a lease to its own key and to administrators, and to no other key', async () => {
    await using here = await world()
    const keys = new Map<string, string>()
    for (const [name, verb] of [
      ['mine', 'acquire'],
      ['other', 'acquire'],
      ['root', 'admin'],
    ] as const)
      keys.set(
        name,
        await here.key(name, [
          { verb, prefix: '' },
          { verb: 'read', prefix: '' },
          { verb: 'watch', prefix: '' },
        ]),
      )
    const { json } = await here.ask(
      'POST',
      '/v1/leases',
      { resources: ['db/main'], holder: 'ann' },
      { authorization: `Bearer ${keys.get('mine')}` },
    )
    for (const [name, offered] of [
      ['mine', true],
      ['other', false],
      ['root', true],
    ] as const) {
      await using tab = await openTab(browser, `${here.url}/#/lease/${json.lease}`)
      await tab.page.locator('#key').fill(keys.get(name)!)
      await tab.page.locator('#key-form button').click()
      await tab.page.locator('h1', { hasText: String(json.lease) }).waitFor()
      await tab.page.locator('.facts', { hasText: 'holder' }).waitFor()
      expect([name, (await tab.page.getByRole('button', { name: 'Release' }).count()) > 0]).toEqual([name, offered])
    }
  })
})
