/** Every view of the dashboard in a real browser, on a world with something in each: what it shows, that it is accessible, and a picture of it. */
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { launch, openTab, screenshotFolder, type Tab } from '../support/dashboard-browser.ts'
import { type DashboardWorld, fillWorld } from '../support/dashboard-world.ts'
import { describeWith } from '../support/engine.ts'
import { type World, world } from '../support/http-world.ts'

/** Views, and a text that each shows only when it has read its data. */
const VIEWS: readonly (readonly [name: string, path: string, text: string])[] = [
  ['now', '#/now', 'nightly migration'],
  ['resources', '#/resources', 'queue/emails/shard-1'],
  ['resource', '#/resource/db/main', 'Who waited for whom'],
  ['leases', '#/leases', 'export-worker'],
  ['services', '#/services', 'payments'],
  ['service', '#/services/critic', 'critic-5'],
  ['instance', '#/services/critic/critic-1', 'Reviews changes'],
  ['elections', '#/elections', 'scheduler-b'],
  ['pools', '#/pools', 'gpus'],
  ['pool', '#/pools/gpus?member=2-6', 'bob-large'],
  ['sessions', '#/sessions', 'documents/42'],
  ['claims', '#/claims', 'split the router'],
  ['events', '#/events', 'granted'],
  ['policies', '#/policies', 'jobs'],
]

describeWith([{ program: 'chromium', packages: ['chromium'] }], 'the views of the dashboard', () => {
  let browser: Browser
  let here: World
  let filled: DashboardWorld
  let tab: Tab
  const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

  beforeAll(async () => {
    ;[browser, here] = await Promise.all([launch(), world()])
    filled = await fillWorld(here)
    tab = await openTab(browser, `${here.url}/`)
  })
  afterAll(async () => {
    await browser?.close()
    await here?.[Symbol.asyncDispose]()
  })

  async function show(page: Page, path: string, text: string): Promise<void> {
    await page.goto(`${here.url}/${path}`)
    await page.locator('main', { hasText: text }).waitFor()
  }

  test.each(VIEWS)('%s is shown, has no serious violation of accessibility, light and dark, and fits a phone', async (name, path, text) => {
    const { page } = tab
    const folder = screenshotFolder()
    for (const theme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' })
      await page.setViewportSize({ width: 1_280, height: 860 })
      await show(page, path, text)
      await page.screenshot({ path: join(folder, `${name}-${theme}.png`) })
      expect(await violations(page)).toEqual([])
    }
    await page.setViewportSize({ width: 390, height: 844 })
    await page.screenshot({ path: join(folder, `${name}-phone.png`) })
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
    await page.setViewportSize({ width: 1_280, height: 860 })
    expect(tab.errors).toEqual([])
  })

  /** The serious violations that axe finds, each with the elements that it complains about. It is run by the debugger, so the policy of the page does not apply to it. */
  async function violations(page: Page): Promise<string[]> {
    if ((await page.evaluate('typeof axe')) === 'undefined') await page.evaluate(await readFile(axe, 'utf8'))
    return page.evaluate(`axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }).then(
      ({ violations }) => violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .map(({ id, nodes }) => id + ': ' + nodes.slice(0, 5).map(({ html, any }) => html.slice(0, 160) + ' ' + (any[0]?.message ?? '')).join(' | ')))`) as Promise<
      string[]
    >
  }

  test.each([1_280, 390])('the squares of a pool name host and kind without cutting them off, on a page of %i pixels', async width => {
    const { page } = tab
    await page.setViewportSize({ width, height: 860 })
    await show(page, '#/pools/gpus', 'bob-large')
    const texts = (await page.evaluate(
      `[...document.querySelectorAll('.member-place')].map(({ innerText, scrollWidth, clientWidth }) => [innerText, scrollWidth <= clientWidth])`,
    )) as [string, boolean][]
    expect(texts.slice(0, 2).map(([text]) => text)).toEqual(['a100', 'gpu-host-1'])
    expect(texts.filter(([, fits]) => !fits)).toEqual([])
    await page.setViewportSize({ width: 1_280, height: 860 })
  })

  test('the dialogs and the form for a key have no serious violation of accessibility', async () => {
    const { page } = tab
    await show(page, `#/lease/${filled.main}`, 'nightly migration')
    // Ages follow the clock of the server, which is years behind that of the browser here.
    expect(await page.locator('.facts', { hasText: 'since' }).innerText()).toMatch(/since\s+\d+ min/)
    await page.getByRole('button', { name: 'Revoke' }).click()
    await page.locator('dialog .effects').waitFor()
    await page.screenshot({ path: join(screenshotFolder(), 'dialog.png') })
    expect(await violations(page)).toEqual([])
    await page.keyboard.press('Escape')
    await page.locator('dialog.asking').waitFor({ state: 'detached' })
    await page.keyboard.press('?')
    await page.locator('dialog.keys[open]').waitFor()
    expect(await violations(page)).toEqual([])
    await using locked = await world()
    await locked.key('root', [{ verb: 'admin', prefix: '' }])
    await using other = await openTab(browser, `${locked.url}/`)
    await other.page.locator('#key-form').waitFor()
    await other.page.screenshot({ path: join(screenshotFolder(), 'key.png') })
    expect(await violations(other.page)).toEqual([])
  })
})
