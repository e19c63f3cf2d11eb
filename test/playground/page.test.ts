/** The playground in a real browser, opened as a file: it plays every scene, shows what it claims, and loads nothing. */
import { execFile } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Player } from '../../playground/player.ts'
import { SCENES } from '../../playground/scenes.ts'
import { launch, openTab, screenshotFolder, type Tab } from '../support/dashboard-browser.ts'
import { describeWith } from '../support/engine.ts'

const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

/** Bytes of everything that the page loads, compressed. */
const MAX_BUNDLE = 300_000

/** As a browser does with a hidden tab: no frame comes until it is shown again, an hour later. */
const HIDE = `
  const frame = requestAnimationFrame
  globalThis.waiting = []
  globalThis.requestAnimationFrame = then => waiting.push(then)
  globalThis.show = () => {
    globalThis.requestAnimationFrame = frame
    for (const then of waiting.splice(0)) frame(at => then(at + 3_600_000))
  }
  undefined`

describeWith([{ program: 'chromium', packages: ['chromium'] }], 'the page of the playground', () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-playground-'))
  let browser: Browser

  beforeAll(async () => {
    const script = fileURLToPath(new URL('../../scripts/playground.mjs', import.meta.url))
    await promisify(execFile)(process.execPath, [script, join(folder, 'playground')])
    writeFileSync(join(folder, 'icon.svg'), '<svg xmlns="http://www.w3.org/2000/svg"/>')
    browser = await launch()
  })
  afterAll(async () => {
    await browser?.close()
    rmSync(folder, { recursive: true, force: true })
  })

  const open = (fragment: string, options?: BrowserContextOptions): Promise<Tab> =>
    openTab(browser, `${pathToFileURL(join(folder, 'playground/index.html'))}#${fragment}`, options)

  /** Waits until the world of the page has come to this time. */
  const until = (page: Page, ms: number) => page.waitForFunction(`Number(document.querySelector('main')?.dataset.now) >= ${ms}`)

  const data = (page: Page, name: string) => page.locator('main').getAttribute(`data-${name}`)

  test('is smaller than 300 kB, compressed', () => {
    const files = readdirSync(join(folder, 'playground')).map(name => readFileSync(join(folder, 'playground', name)))
    expect(files).toHaveLength(3)
    expect(files.reduce((sum, file) => sum + gzipSync(file).length, 0)).toBeLessThan(MAX_BUNDLE)
  })

  test.each(SCENES.map(scene => [scene.name, scene] as const))(
    'plays %s as Node does, and shows all that it claims',
    async (name, scene) => {
      await using tab = await open(`scene=${name}&t=${scene.length}`)
      await until(tab.page, scene.length)
      const claims = tab.page.locator('.claims li')
      await expect
        .poll(() => claims.evaluateAll(items => items.map(item => item.getAttribute('data-claim'))))
        .toEqual(scene.claims.map(() => 'true'))
      const player = new Player(scene.settings, scene.acts)
      await player.run(scene.length)
      expect(await data(tab.page, 'digest')).toBe(String(player.world.timeline.digest))
      expect(tab.errors).toEqual([])
      expect(tab.requested.filter(url => !url.startsWith('file:'))).toEqual([])
      await tab.page.screenshot({ path: join(screenshotFolder(), `playground-${name}-light.png`) })
    },
  )

  test.each([
    ['zombie-writer', 23_000],
    ['split-brain', 22_500],
    ['lost-tail', 18_500],
  ])('the picture of %s at %d ms shows two holders of the plain lock and none of the lease', async (name, at) => {
    const { settings, acts } = SCENES.find(scene => scene.name === name)!
    await using tab = await open(`scene=${name}&t=${at}`, { viewport: { width: 900, height: 900 }, deviceScaleFactor: 1 })
    await until(tab.page, at)
    await expect.poll(() => tab.page.locator('[data-overlap]').count()).toBe(1)
    const player = new Player(settings, acts)
    await player.run(at)
    expect(player.world.verdicts.map(({ side }) => side)).not.toContain('lease')
    await tab.page.locator('.picture').screenshot({ path: join(screenshotFolder(), `playground-picture-${name}.png`) })
  })

  test('plays by itself, pauses, steps and begins again, by keys', async () => {
    await using tab = await open('scene=hand-over')
    const { page } = tab
    await until(page, 1_000)
    await page.keyboard.press('Space')
    await expect.poll(() => data(page, 'running')).toBe('false')
    const stopped = Number(await data(page, 'now'))
    await page.keyboard.press('ArrowRight')
    await until(page, stopped + 200)
    await page.keyboard.press('Home')
    await expect.poll(() => data(page, 'now')).toBe('0')
    await page.keyboard.press('Space')
    await until(page, 500)
    await page.keyboard.press('ArrowDown')
    await page.locator('.explanation', { hasText: 'Process b.' }).waitFor()
    await page.keyboard.press('+')
    expect(await page.locator('.transport select').inputValue()).toBe('4')
    expect(tab.errors).toEqual([])
  })

  test('lets a person kill the holder: the other process gets the lease, and the link holds all of it', async () => {
    await using tab = await open('scene=zombie-writer&t=4000')
    const { page } = tab
    await until(page, 4_000)
    await page.getByRole('button', { name: 'Kill', exact: true }).click()
    await page.locator('.claims', { hasText: 'The scene was changed' }).waitFor()
    await page.locator('select').first().selectOption('8')
    await page.getByRole('button', { name: 'Play' }).click()
    await page.locator('[data-bar="b lease held"]').first().waitFor({ state: 'attached' })
    await page.getByRole('button', { name: 'Pause', exact: true }).click()
    await page.getByRole('button', { name: 'Link to this moment' }).click()
    await page.locator('output', { hasText: 'link' }).waitFor()
    const fragment = new URL(page.url()).hash.slice(1)
    expect(fragment).toMatch(/do=.*kill0/)
    const [now, digest] = [Number(/t=(\d+)/.exec(fragment)![1]), await data(page, 'digest')]
    await using again = await open(fragment)
    await until(again.page, now)
    await expect.poll(() => data(again.page, 'digest')).toBe(digest)
    expect([...tab.errors, ...again.errors]).toEqual([])
  })

  test('lets a person change the settings: some at once, and the number of processes and the plain lock in a run from the start', async () => {
    await using tab = await open('scene=zombie-writer&t=4000')
    const { page } = tab
    await until(page, 4_000)
    await page.getByLabel('the resource checks tokens').uncheck()
    await page.locator('.recent', { hasText: 'the resource checks no tokens' }).waitFor()
    await page.getByRole('button', { name: 'Cut link' }).click()
    await page.locator('.condition.cut').waitFor({ state: 'attached' })
    await page.getByRole('slider', { name: 'processes' }).fill('5')
    await expect.poll(() => page.locator('.lane').count()).toBe(5 + 3)
    expect(await data(page, 'now')).toBe('0')
    await page.getByLabel('a plain lock beside it').uncheck()
    await expect.poll(() => page.locator('.lane').count()).toBe(5 + 2)
    expect(tab.errors).toEqual([])
  })

  test('says in the words of the product why a bar is there', async () => {
    await using tab = await open('scene=zombie-writer&t=5000')
    const { page } = tab
    await until(page, 5_000)
    await page.locator('[data-bar="a lease held"] .past').hover({ force: true })
    await page.locator('.explanation', { hasText: 'By its own clock, a holds lease' }).waitFor()
    await page.locator('.explanation', { hasText: 'jobs/nightly is held by a (lease' }).waitFor()
    await page.locator('.explanation', { hasText: '1 waiter: b' }).waitFor()
  })

  test('answers a damaged link with a sentence, and shows the first scene', async () => {
    await using tab = await open('scene=split-brain&do=5kill99')
    await tab.page.getByRole('alert').getByText('The link is damaged: “5kill99” names no process').waitFor()
    expect(await data(tab.page, 'scene')).toBe(SCENES[0]!.name)
    expect(tab.errors).toEqual([])
  })

  test('stands still while its tab is hidden, and goes on where it was', async () => {
    await using tab = await open('scene=hand-over')
    const { page } = tab
    await until(page, 500)
    await page.evaluate(HIDE)
    await page.waitForFunction('waiting.length > 0')
    const before = Number(await data(page, 'now'))
    await page.evaluate('show()')
    await until(page, before + 100)
    expect(Number(await data(page, 'now'))).toBeLessThan(60_000)
    expect(tab.errors).toEqual([])
  })

  test('with reduced motion begins only when it is told to', async () => {
    await using tab = await open('scene=hand-over', { reducedMotion: 'reduce' })
    await tab.page.getByRole('button', { name: 'Play' }).waitFor()
    expect(await data(tab.page, 'running')).toBe('false')
    expect(await data(tab.page, 'now')).toBe('0')
  })

  test('draws fifty processes', async () => {
    const acts = Array.from({ length: 50 }, (_, who) => `${500 + who * 50}acquire${who}`).join(',')
    await using tab = await open(`scene=dead-waiter&t=12000&set=processes:50&do=${acts}`)
    await until(tab.page, 12_000)
    expect(await tab.page.locator('.lane').count()).toBe(53)
    expect(tab.errors).toEqual([])
    await tab.page.screenshot({ path: join(screenshotFolder(), 'playground-fifty-light.png'), fullPage: true })
  })

  test.each([
    ['light', 1_280],
    ['dark', 1_280],
    ['light', 390],
    ['dark', 390],
  ] as const)(
    'in the %s theme, %d pixels wide, has no accessibility violation and nothing to scroll sideways',
    async (colorScheme, width) => {
      await using tab = await open('scene=lost-tail&t=19000', { colorScheme, viewport: { width, height: 900 }, hasTouch: width === 390 })
      const { page } = tab
      await until(page, 19_000)
      await page.evaluate(readFileSync(axe, 'utf8'))
      const found = await page.evaluate(
        "axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }).then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html.slice(0, 90)).join(' ')))",
      )
      expect(found).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width)
      if (width === 390) {
        await page.locator('g.name.process').nth(1).tap()
        await page.locator('.explanation', { hasText: 'Process b.' }).waitFor()
      }
      await page.screenshot({ path: join(screenshotFolder(), `playground-${width}-${colorScheme}.png`), fullPage: true })
    },
  )
})
