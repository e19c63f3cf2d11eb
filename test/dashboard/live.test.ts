/** The dashboard under load in a real browser: long tables, a flood of events, and countdowns that agree with the server. */
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { Replica } from '../../src/replica/replica.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { serve } from '../../src/server/serve.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { launch, openTab } from '../support/dashboard-browser.ts'
import { acquire, granted } from '../support/dashboard-world.ts'
import { describeWith } from '../support/engine.ts'
import { world } from '../support/http-world.ts'

const RESOURCES = 100_000
/** Names in one lease. */
const NAMES = 250
const EVENTS = 12_000

describeWith([{ program: 'chromium', packages: ['chromium'] }], 'under load, the dashboard', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await launch()
  }, 60_000)
  afterAll(() => browser?.close())

  test('lists, scrolls, sorts and filters 100,000 resources, and draws only those that are visible', async () => {
    await using here = await world()
    await here.lessor.propose({ kind: 'policy', prefix: '', rules: { leases: 1_000_000 } })
    const name = (i: number) => `jobs/${String(i).padStart(6, '0')}`
    for (let i = 0; i < RESOURCES; i += NAMES)
      await here.lessor.propose(
        acquire(
          `worker-${i / NAMES}`,
          Array.from({ length: NAMES }, (_, n) => name(i + n)),
        ),
      )
    await using tab = await openTab(browser, `${here.url}/#/resources`)
    const { page, errors } = tab
    const rows = page.locator('.sizer .row')
    await rows.filter({ hasText: name(0) }).waitFor()
    expect(await page.locator('.total').innerText()).toContain('100,000 resources')
    expect(await rows.count()).toBeLessThan(80)
    await page.locator('[role=grid]').evaluate(box => {
      const element = box as unknown as { scrollTop: number; scrollHeight: number }
      element.scrollTop = element.scrollHeight / 2
    })
    await rows
      .filter({ hasText: /jobs\/0500\d\d/ })
      .first()
      .waitFor()
    await page.locator('[role=grid]').focus()
    await page.keyboard.press('End')
    await rows.filter({ hasText: name(RESOURCES - 1) }).waitFor()
    expect(await rows.count()).toBeLessThan(80)
    await page.getByRole('button', { name: 'Resource' }).click()
    await rows.filter({ hasText: name(RESOURCES - 1) }).waitFor()
    await page.locator('#filter-text').fill(name(77_777))
    await expect.poll(() => rows.count()).toBe(1)
    expect(await rows.innerText()).toContain('worker-311')
    await page.locator('#filter-text').fill('')
    await page.locator('#filter-holder').fill('worker-12')
    await expect.poll(() => page.locator('.total').innerText()).toContain('250 resources')
    expect(errors).toEqual([])
  }, 180_000)

  test('keeps up with a flood of events, in bounded memory', async () => {
    await using here = await world()
    await using tab = await openTab(browser, `${here.url}/#/events`)
    const { page, errors } = tab
    await page.locator('#status[data-state=live]').waitFor()
    const flood = async (events: number, batch: string) => {
      for (let i = 0; i < events / 2; i += 50)
        await Promise.all(
          Array.from({ length: 50 }, async (_, n) => {
            const outcome = await here.lessor.propose(acquire(`worker-${n}`, [`${batch}/${i + n}`]))
            if (outcome.kind === 'granted') await here.lessor.propose({ kind: 'release', lease: outcome.lease })
          }),
        )
      await page
        .locator('.events li', { hasText: `${batch}/` })
        .first()
        .waitFor()
      await granted(here, acquire('last', [`${batch}-is-over`]))
      await page.locator('.events li', { hasText: `${batch}-is-over` }).waitFor()
      return usedHeap(page)
    }
    const first = await flood(EVENTS / 2, 'first')
    const second = await flood(EVENTS / 2, 'second')
    expect(await page.locator('.events li').count()).toBe(100)
    expect(await page.locator('.total').innerText()).toContain('of the last 2,000 events')
    // The lists were full after the first half: the second half replaces what it added.
    expect(second - first).toBeLessThan(2_000_000)
    expect(errors).toEqual([])
  }, 180_000)

  /** Bytes that are in use after a garbage collection. */
  async function usedHeap(page: Page): Promise<number> {
    const debug = await page.context().newCDPSession(page)
    await debug.send('HeapProfiler.collectGarbage')
    const { usedSize } = await debug.send('Runtime.getHeapUsage')
    await debug.detach()
    return usedSize
  }

  test('shows the time that a lease has left within 100 ms of the server', async () => {
    const store = new MemoryStore({ log: new MemoryLog({ clock: systemClock }), clock: systemClock })
    const lessor = await Replica.open(store, { clock: systemClock })
    const server = await serve({ lessor, clock: systemClock, listen: '127.0.0.1:0', http: httpListener({}) })
    const outcome = await lessor.propose(acquire('ann', ['jobs/nightly'], { ttl: 50_000 }))
    const lease = outcome.kind === 'granted' ? outcome.lease : 0
    await lessor.propose({ kind: 'renew', leases: [lease] })
    const url = `http://${server.addresses[0]!.replace(/^.*\/\//, '')}`
    try {
      await using tab = await openTab(browser, `${url}/#/resources`)
      await tab.page.locator('.left-text').first().waitFor()
      // The page shows tenths of a second. What the server said is true for a moment between request and answer.
      const difference = () =>
        tab.page.evaluate(`(async () => {
          const sent = performance.now()
          const { remaining } = await (await fetch('/v1/leases/${lease}')).json()
          const took = performance.now() - sent
          const shown = parseFloat(document.querySelector('.left-text').textContent) * 1000
          return Math.max(0, shown - remaining - 50, remaining - took - shown - 50)
        })()`) as Promise<number>
      await expect.poll(difference, { timeout: 30_000 }).toBeLessThanOrEqual(100)
    } finally {
      await server.close()
      await lessor[Symbol.asyncDispose]()
    }
  })
})
