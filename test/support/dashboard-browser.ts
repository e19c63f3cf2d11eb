/** A real browser for tests of the dashboard: one for each test file, with a tab that records what it requests and what goes wrong in it. */
import { mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { find } from './engine.ts'

export interface Tab extends AsyncDisposable {
  readonly page: Page
  /** The address of every request. */
  readonly requested: string[]
  /** Exceptions, and errors on the console. */
  readonly errors: string[]
}

export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: find('chromium')!,
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
  })
}

export async function openTab(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Tab> {
  const context = await browser.newContext({ viewport: { width: 1_280, height: 860 }, ...options })
  context.setDefaultTimeout(45_000)
  const page = await context.newPage()
  const requested: string[] = []
  const errors: string[] = []
  page.on('request', request => requested.push(request.url()))
  page.on('pageerror', error => errors.push(String(error)))
  page.on('console', message => {
    if (message.type() === 'error') errors.push(message.text())
  })
  await page.goto(url)
  return { page, requested, errors, [Symbol.asyncDispose]: () => context.close() }
}

/** Where screenshots are written: the folder that LEASEHOLD_SCREENSHOTS names, or one below the system's temporary folder. */
export function screenshotFolder(): string {
  const folder = process.env.LEASEHOLD_SCREENSHOTS ?? join(tmpdir(), 'leasehold-screenshots')
  mkdirSync(folder, { recursive: true })
  return folder
}
