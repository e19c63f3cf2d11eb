// A real browser on a server with a load, for measuring the page: the bench `page` and `npm run soak` share it.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'
import { endsWithRun } from './engine.mjs'
import { debianProgram } from './peers/provide.mjs'

const findBrowser = () => debianProgram('chromium', ['chromium'])

/** A server in its own process. `ask` sends it an order and returns its figures. */
export async function pageServer() {
  await findBrowser() // a server that no browser visits need not start
  const child = endsWithRun(fork(fileURLToPath(new URL('./page-child.mjs', import.meta.url))))
  const [{ port }] = await once(child, 'message')
  return {
    url: `http://127.0.0.1:${port}`,
    async ask(what, value) {
      child.send({ ask: what, value })
      const [figures] = await once(child, 'message')
      return figures
    },
    async [Symbol.asyncDispose]() {
      const gone = once(child, 'exit')
      child.kill('SIGTERM')
      await gone
    },
  }
}

/** A tab that shows this address, and what went wrong in it. */
export async function openPage(url) {
  const browser = await chromium.launch({
    executablePath: await findBrowser(),
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
  })
  const page = await browser.newPage({ viewport: { width: 1_280, height: 860 } })
  const errors = []
  page.on('pageerror', error => errors.push(String(error)))
  await page.goto(url)
  await page.locator('#status[data-state=live]').waitFor()
  return { page, errors, [Symbol.asyncDispose]: () => browser.close() }
}

/** Bytes of the page's heap that are in use after a garbage collection. */
export async function pageHeap(page) {
  const debug = await page.context().newCDPSession(page)
  await debug.send('HeapProfiler.collectGarbage')
  const { usedSize } = await debug.send('Runtime.getHeapUsage')
  await debug.detach()
  return usedSize
}

/** Ms between one animation frame and the next, during this many seconds. */
export function frames(page, seconds) {
  return page.evaluate(
    `new Promise(resolve => {
      const gaps = []
      let last = performance.now()
      const end = last + ${seconds * 1_000}
      const frame = now => {
        gaps.push(now - last)
        last = now
        if (now < end) requestAnimationFrame(frame)
        else resolve(gaps.slice(2).sort((a, b) => a - b))
      }
      requestAnimationFrame(frame)
    })`,
  )
}

/** A frame later than this was dropped: the screen shows one each 16.7 ms. */
export const DROPPED = 25
