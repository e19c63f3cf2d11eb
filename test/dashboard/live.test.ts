/** The dashboard under load in a real browser: long tables, a flood of events, and countdowns that agree with the server. */
import type { Browser, Page, Request } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { propose } from '../../src/lessor/propose.ts'
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
  })
  afterAll(() => browser?.close())

  test('lists, scrolls, sorts and filters 100,000 resources, and draws only those that are visible', async () => {
    await using here = await world()
    await propose(here.lessor, { kind: 'policy', prefix: '', rules: { leases: 1_000_000 } })
    const name = (i: number) => `jobs/${String(i).padStart(6, '0')}`
    for (let i = 0; i < RESOURCES; i += NAMES)
      await propose(
        here.lessor,
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
    // Each key is a filter of its own, while answers to earlier ones come.
    await page.locator('#filter-text').pressSequentially(name(77_777))
    await expect.poll(() => rows.count()).toBe(1)
    expect(await page.locator('#filter-text').inputValue()).toBe(name(77_777))
    expect(await rows.innerText()).toContain('worker-311')
    await page.locator('#filter-text').fill('')
    await page.locator('#filter-holder').fill('worker-12')
    await expect.poll(() => page.locator('.total').innerText()).toContain('250 resources')
    expect(errors).toEqual([])
  })

  test('keeps up with a flood of events, in bounded memory', async () => {
    await using here = await world()
    await using tab = await openTab(browser, `${here.url}/#/events`)
    const { page, errors } = tab
    await page.locator('#status[data-state=live]').waitFor()
    const flood = async (events: number, batch: string) => {
      for (let i = 0; i < events / 2; i += 50)
        await Promise.all(
          Array.from({ length: 50 }, async (_, n) => {
            const outcome = await propose(here.lessor, acquire(`worker-${n}`, [`${batch}/${i + n}`]))
            if (outcome.kind === 'granted') await propose(here.lessor, { kind: 'release', lease: outcome.lease })
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
    expect(await page.locator('.events li').count()).toBeLessThan(60)
    expect(await page.locator('.total').innerText()).toContain('of the last 2,000 events')
    // The lists were full after the first half: the second half replaces what it added.
    expect(second - first).toBeLessThan(2_000_000)
    expect(errors).toEqual([])
  })

  test('shows every event that the page keeps, and stands still while the reader has scrolled away from the newest', async () => {
    await using here = await world()
    for (let i = 0; i < 300; i++) await granted(here, acquire('ann', [`old/${i}`]))
    await using tab = await openTab(browser, `${here.url}/#/events`)
    const { page, errors } = tab
    const lines = page.locator('.events li')
    await lines.filter({ hasText: 'old/299' }).waitFor()
    const box = page.locator('.tail')
    const scroll = (top: number) => box.evaluate((element, to) => ((element as unknown as { scrollTop: number }).scrollTop = to), top)
    await scroll(1_000_000)
    await lines.filter({ hasText: /old\/0(?!\d)/ }).waitFor()
    expect(await lines.count()).toBeLessThan(60)
    await expect.poll(() => page.locator('.total').innerText()).toContain('Stands still while you read')
    const read = await lines.allInnerTexts()
    await granted(here, acquire('ann', ['new/one']))
    const { revision } = await here.lessor.read({ kind: 'summary' })
    // The page has received it.
    await expect.poll(() => page.locator('#status .exact').getAttribute('title')).toBe(`revision ${revision}`)
    expect(await lines.allInnerTexts()).toEqual(read)
    await scroll(0)
    await lines.filter({ hasText: 'new/one' }).waitFor()
    expect(await page.locator('.total').innerText()).not.toContain('Stands still')
    // A link in focus stays the same one, although lines are reused.
    const link = lines.first().locator('a').first()
    await link.focus()
    await granted(here, acquire('ann', ['new/two']))
    await expect.poll(() => page.locator('.total').innerText()).toContain('Stands still')
    expect(await link.innerText()).toBe('new/one')
    await link.blur()
    await lines.filter({ hasText: 'new/two' }).waitFor()
    const number = lines.first().locator('.rev .exact')
    await number.click()
    expect(`revision ${await number.innerText()}`).toBe(await number.getAttribute('title'))
    expect(errors).toEqual([])
  })

  /** Bytes that are in use after a garbage collection. */
  async function usedHeap(page: Page): Promise<number> {
    const debug = await page.context().newCDPSession(page)
    await debug.send('HeapProfiler.collectGarbage')
    const { usedSize } = await debug.send('Runtime.getHeapUsage')
    await debug.detach()
    return usedSize
  }

  test('shows the time that a lease has left within 100 ms of the server, at any moment between two readings', async () => {
    await using here = await world()
    const lease = await granted(here, acquire('ann', ['jobs/nightly'], { ttl: 55_000 }))
    // Both clocks are moved by hand, and together.
    const context = await browser.newContext({ viewport: { width: 1_280, height: 860 } })
    context.setDefaultTimeout(45_000)
    try {
      const page = await context.newPage()
      await page.clock.install({ time: 1_700_000_000_000 })
      await page.goto(`${here.url}/#/resources`)
      await page.locator('.left-text').first().waitFor()
      await page.clock.pauseAt(1_700_000_100_000)
      const unanswered = new Set<Request>()
      page.on('request', request => {
        if (request.headers().accept !== 'text/event-stream') unanswered.add(request)
      })
      for (const end of ['requestfinished', 'requestfailed'] as const)
        page.on(end as 'requestfinished', request => void unanswered.delete(request))
      // In small steps: a reading in the middle of one sees the server's clock moved and that of the page not yet. No time passes while an answer is under way.
      const together = async (ms: number) => {
        for (let left = ms; left > 0; left -= 25) {
          await here.clock.advance(Math.min(left, 25))
          await page.clock.runFor(Math.min(left, 25))
          await expect.poll(() => unanswered.size, { interval: 1 }).toBe(0)
        }
      }
      const difference = async () => {
        const shown = Number.parseFloat(await page.locator('.left-text').first().innerText()) * 1_000
        const { value } = await here.lessor.read({ kind: 'lease', lease })
        return Math.abs(shown - value!.remaining)
      }
      // The page was opened before its clock was stopped: let it read once more.
      for (let i = 0; i < 30; i++) await together(50)
      await expect.poll(() => together(50).then(difference)).toBeLessThanOrEqual(100)
      for (const ms of [7, 13, 29, 50, 3, 41, 17, 90, 61, 5, 33, 77, 50, 50, 11, 250, 19, 400, 43]) {
        await together(ms)
        expect(await difference(), `after ${ms} ms`).toBeLessThanOrEqual(100)
      }
    } finally {
      await context.close()
    }
  })
})
