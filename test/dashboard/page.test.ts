/** The dashboard in a real browser. */
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Browser, chromium, type Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Acquire } from '../../src/kernel/command.ts'
import type { Lessor } from '../../src/lessor.ts'
import { describeWith, find } from '../support/engine.ts'
import { type World, world } from '../support/http-world.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

const acquire = (holder: string, names: readonly string[], more: Partial<Acquire> = {}): Acquire => ({
  kind: 'acquire',
  holder,
  ttl: 30_000,
  wants: names.map(resource => ({ resource })),
  ...more,
})

/** Each would call `ran()` or send a request to `evil.invalid` if the page treated it as anything but text. */
const PAYLOADS = [
  '<script>ran(1)</script>',
  '<img src=x onerror=ran(2)>',
  '<svg onload=ran(3)>',
  '"><script>ran(4)</script>',
  "'><img src=x onerror='ran(5)'>",
  'javascript:ran(6)',
  'JaVaScRiPt:ran(7)//',
  ' javascript:ran(8)',
  'data:text/html,<script>ran(9)</script>',
  'vbscript:ran(10)',
  '<iframe src="javascript:ran(11)"></iframe>',
  '<iframe srcdoc="<script>parent.ran(12)</script>"></iframe>',
  '<body onload=ran(13)>',
  '<details open ontoggle=ran(14)>',
  '<input autofocus onfocus=ran(15)>',
  '<video><source onerror=ran(16)></video>',
  '<math><mi xlink:href="javascript:ran(17)">x</mi></math>',
  '<object data="javascript:ran(18)"></object>',
  '<embed src="https://evil.invalid/19">',
  '<link rel=stylesheet href="https://evil.invalid/20">',
  '<style>@import "https://evil.invalid/21"</style>',
  '<base href="https://evil.invalid/22/">',
  '<form action="javascript:ran(23)"><button autofocus>x</button></form>',
  '<a href="javascript:ran(24)" id=x>x</a>',
  '<template><script>ran(25)</script></template>',
  '<meta http-equiv=refresh content="0;url=https://evil.invalid/26">',
  '</td></tr></table><script>ran(27)</script>',
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template engine would run it
  '${ran(28)}{{ran(28)}}<%=ran(28)%>',
  '<noscript><p title="</noscript><img src=x onerror=ran(29)>">',
  '&lt;script&gt;ran(30)&lt;/script&gt;',
  'http://x/"onmouseover="ran(31)',
  '<img src="https://evil.invalid/32">',
]

describeWith([{ program: 'chromium', packages: ['chromium'] }], 'the dashboard', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await chromium.launch({
      executablePath: find('chromium')!,
      args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
    })
  }, 60_000)
  afterAll(() => browser?.close())

  /** Opens a new tab, and records its requests and errors. */
  async function openTab(
    here: World,
  ): Promise<{ page: Page; requested: string[]; errors: string[]; [Symbol.asyncDispose](): Promise<void> }> {
    const context = await browser.newContext()
    const page = await context.newPage()
    const requested: string[] = []
    const errors: string[] = []
    page.on('request', request => requested.push(request.url()))
    page.on('pageerror', error => errors.push(String(error)))
    page.on('console', message => {
      if (message.type() === 'error') errors.push(message.text())
    })
    await page.goto(`${here.url}/`)
    return { page, requested, errors, [Symbol.asyncDispose]: () => context.close() }
  }

  test('a page of the server’s own origin can acquire, renew, watch and release with the HTTP client, and a frozen tab learns of its loss with the next request', async () => {
    await using here = await world()
    await using tab = await openTab(here)
    const { page, errors } = tab
    await page.route('**/client/**', async (route, request) =>
      route.fulfill({
        contentType: 'text/javascript',
        body: await readFile(join(root, 'dist', new URL(request.url()).pathname.slice('/client/'.length))),
      }),
    )
    const body = "import { HttpLessor } from './wire/http/client.js'; globalThis.HttpLessor = HttpLessor"
    await page.route('**/client/index.js', route => route.fulfill({ contentType: 'text/javascript', body }))
    await page.addScriptTag({ type: 'module', url: '/client/index.js' })
    const first = await page.evaluate(async url => {
      const { HttpLessor } = globalThis as unknown as { HttpLessor: { open(url: string): Promise<Lessor> } }
      const lessor = await HttpLessor.open(url)
      const events: string[] = []
      const watching = (async () => {
        for await (const batch of lessor.watch('k', { signal: new AbortController().signal }))
          for (const { type } of batch) events.push(type)
      })()
      watching.catch(() => {})
      const granted = async () => {
        const outcome = await lessor.propose({ kind: 'acquire', holder: 'tab', ttl: 5_000, wants: [{ resource: 'k' }] })
        return outcome.kind === 'granted' ? outcome.lease : 0
      }
      const lease = await granted()
      const renewed = await lessor.propose({ kind: 'renew', leases: [lease] })
      const released = await lessor.propose({ kind: 'release', lease })
      Object.assign(globalThis, { lessor, events, lease: await granted() })
      return [renewed, released]
    }, here.url)
    expect(first).toMatchObject([{ ttls: [5_000] }, { kind: 'done' }])
    await here.clock.advance(20_000)
    const later = await page.evaluate(async () => {
      const { lessor, lease } = globalThis as unknown as { lessor: Lessor; lease: number }
      return lessor.propose({ kind: 'renew', leases: [lease] })
    })
    expect(later).toMatchObject({ ttls: [-1] })
    const events = () => page.evaluate(() => (globalThis as unknown as { events: string[] }).events)
    await expect.poll(events).toEqual(['granted', 'released', 'granted', 'lapsed'])
    expect(errors).toEqual([])
  })

  test('it shows holders and waiters, and follows events without a reload', async () => {
    await using here = await world()
    const lease = (await here.lessor.propose(acquire('ann', ['jobs/nightly']))) as { lease: number; tokens: readonly number[] }
    await here.lessor.propose(acquire('bob', ['jobs/nightly'], { wait: true }))
    await here.lessor.propose(
      acquire('planner-1', [], {
        entries: [
          { key: 'services/planner/planner-1', value: JSON.stringify({ addresses: ['http://10.0.0.7:8080'], capabilities: ['plan'] }) },
        ],
      }),
    )
    await using tab = await openTab(here)
    const { page, requested, errors } = tab
    const row = page.locator('#resources tbody tr', { hasText: 'jobs/nightly' })
    await row.waitFor()
    expect(await row.locator('td').allInnerTexts()).toEqual([
      'jobs/nightly',
      'ann',
      String(lease.tokens[0]),
      expect.stringMatching(/^\d+(\.\d)? s$/),
      'bob',
    ])
    expect(await page.locator('#agents tbody tr td').allInnerTexts()).toEqual([
      'planner',
      'planner-1',
      'http://10.0.0.7:8080',
      'plan',
      'passing',
    ])
    expect(await page.locator('#agents a').getAttribute('href')).toBe('http://10.0.0.7:8080')
    await page.locator('#status[data-state=live]').waitFor()
    await here.lessor.propose({ kind: 'release', lease: lease.lease })
    await row.locator('td:nth-child(2)', { hasText: 'bob' }).waitFor()
    expect((await row.locator('td').allInnerTexts())[4]).toBe('')
    expect(await page.locator('#events li .type').allInnerTexts()).toEqual(['granted', 'released'])
    await here.lessor.propose(acquire('eve', ['new/one']))
    await page.locator('#resources tbody tr', { hasText: 'new/one' }).waitFor()
    const before = await row.locator('time').innerText()
    await expect.poll(() => row.locator('time').innerText()).not.toBe(before)
    await page.locator('#filter').fill('new/')
    await row.waitFor({ state: 'detached' })
    expect(errors).toEqual([])
    for (const url of requested) expect(url.startsWith(here.url)).toBe(true)
  })

  test('it reads changed resources again, and everything only every few seconds', async () => {
    await using here = await world()
    for (let i = 0; i < 20; i++) await here.lessor.propose(acquire('ann', [`held/${i}`]))
    await using tab = await openTab(here)
    const { page, requested } = tab
    await page.locator('#status[data-state=live]').waitFor()
    await page.locator('#resources tbody tr').nth(19).waitFor()
    const began = performance.now()
    const before = requested.length
    for (let i = 0; i < 10; i++) {
      const { lease } = (await here.lessor.propose(acquire(`eve-${i}`, ['new/one']))) as { lease: number }
      await page.locator('#resources tbody tr', { hasText: `eve-${i}` }).waitFor()
      await here.lessor.propose({ kind: 'release', lease })
      await page.locator('#resources tbody tr', { hasText: 'new/one' }).waitFor({ state: 'detached' })
    }
    const paths = requested.slice(before).map(url => url.replace(here.url, ''))
    expect(paths).toContain('/v1/resources/new/one')
    const most = Math.ceil((performance.now() - began) / 3_000) + 1
    expect(paths.filter(path => path.startsWith('/v1/resources?')).length).toBeLessThanOrEqual(most)
    // Too many to read one by one.
    await Promise.all(Array.from({ length: 40 }, (_, i) => here.lessor.propose(acquire('mob', [`mob/${i}`]))))
    await page.locator('#resources tbody tr', { hasText: 'mob/39' }).waitFor()
    expect(requested.filter(url => url.includes('/v1/resources/mob/')).length).toBeLessThan(20)
  })

  test('when there are more leases than it lists, it counts all of them, finds one by name, and never says that no resource is held', async () => {
    await using here = await world()
    const names = Array.from({ length: 400 }, (_, i) => `jobs/${String(i).padStart(3, '0')}`)
    for (const name of names) await here.lessor.propose(acquire('ann', [name], { ttl: 3_600_000 }))
    for (const name of ['team/One', 'team/Two']) await here.lessor.propose(acquire('zoe', [name], { ttl: 3_600_000 }))
    await here.lessor.propose(acquire('bob', ['jobs/000'], { wait: true }))
    await using tab = await openTab(here)
    const { page, errors } = tab
    await expect.poll(() => page.locator('#count-held').textContent()).toBe('402')
    expect(await page.locator('#count-waiting').textContent()).toBe('1')
    const shown = new Set(await page.locator('#resources tbody tr td.name').allTextContents())
    expect(shown.size).toBe(300)
    const hidden = [...names, 'team/One', 'team/Two'].filter(name => !shown.has(name))
    for (const name of [hidden[0]!, hidden.at(-1)!]) {
      await page.locator('#filter').fill(name)
      await expect.poll(() => page.locator('#resources tbody tr td.name').allTextContents()).toContain(name)
    }
    await page.locator('#filter').fill('team')
    await expect.poll(() => page.locator('#resources tbody tr td.name').allTextContents()).toEqual(['team/One', 'team/Two'])
    await page.locator('#filter').fill('nothing of that name')
    await expect.poll(() => page.locator('#resources-unmatched').isVisible()).toBe(true)
    expect(await page.locator('#resources-empty').isVisible()).toBe(false)
    expect(await page.locator('#resources-unmatched').textContent()).toMatch(/the list is incomplete/)
    expect(errors.filter(text => !/404|400/.test(text))).toEqual([])
  })

  test('the bar of a lease shows the remaining share of its ttl', async () => {
    await using here = await world()
    const granted = await here.lessor.propose(acquire('ann', ['a'], { ttl: 60_000 }))
    await here.lessor.propose({ kind: 'renew', leases: [(granted as { lease: number }).lease] })
    await here.clock.advance(29_000)
    await using tab = await openTab(here)
    const bar = tab.page.locator('#resources progress')
    await expect.poll(() => bar.isVisible()).toBe(true)
    const full = await bar.evaluate(found => (found as unknown as { value: number }).value)
    expect(full).toBeGreaterThan(0.3)
    expect(full).toBeLessThan(0.53)
  })

  test('it shows the same status of an agent as the server', async () => {
    await using here = await world()
    const said = [
      ['draining', 'critical', 'draining'],
      ['passing', 'critical', 'critical'],
      ['warning', 'passing', 'warning'],
      ['passing', 'warning', 'warning'],
      ['critical', 'passing', 'critical'],
      ['passing', 'passing', 'passing'],
      ['passing', '', 'unknown'],
    ]
    for (const [i, [state, check]] of said.entries()) {
      const key = `services/pay/${i}`
      const registered = (await here.lessor.propose(
        acquire(`pay-${i}`, [], {
          entries: [
            { key, value: JSON.stringify({ addresses: [`http://10.0.0.${i}:80`], check: { url: 'tcp://10.0.0.7:80' } }) },
            { key: `${key}/state`, value: JSON.stringify({ status: state, load: 3 }) },
          ],
        }),
      )) as { lease: number }
      if (check !== '')
        await here.lessor.propose({ kind: 'put', lease: registered.lease, key: `${key}/check`, value: JSON.stringify({ status: check }) })
    }
    const { json } = await here.ask('GET', '/v1/services/pay')
    expect(json.instances.map(({ status }: { status: string }) => status)).toEqual(said.map(([, , shown]) => shown))
    await using tab = await openTab(here)
    await tab.page.locator('#agents tbody tr').nth(6).waitFor()
    expect(await tab.page.locator('#agents tbody td:nth-child(5)').allInnerTexts()).toEqual(said.map(([, , shown]) => shown))
    // Also after an event changes the status.
    const { value } = await here.lessor.read({ kind: 'entries', prefix: 'services/pay/5' })
    await here.lessor.propose({ kind: 'put', lease: value[0]!.lease, key: 'services/pay/5/check', value: '{"status":"critical"}' })
    await tab.page.locator('#agents tbody tr:nth-child(6) td:nth-child(5)', { hasText: 'critical' }).waitFor()
  })

  test('it shows what a key may read, and says what the key may not read', async () => {
    await using here = await world()
    await here.lessor.propose(acquire('ann', ['jobs/seen']))
    await here.lessor.propose(acquire('bob', ['secret/held']))
    const scoped = await here.key('scoped', [
      { verb: 'read', prefix: 'jobs' },
      { verb: 'watch', prefix: 'jobs' },
    ])
    const reader = await here.key('reader', [{ verb: 'read', prefix: 'jobs' }])
    const none = await here.key('none', [])
    const enter = async (page: Page, key: string) => {
      await page.locator('#key').fill(key)
      await page.locator('#key-form button').click()
    }
    await using tab = await openTab(here)
    const { page } = tab
    await page.locator('#key-form').waitFor()
    expect(await page.locator('#resources-empty').isVisible()).toBe(false)
    await enter(page, scoped)
    await page.locator('#status[data-state=live]').waitFor()
    expect(await page.locator('#resources tbody td:nth-child(1)').allInnerTexts()).toEqual(['jobs/seen'])
    expect(await page.locator('#agents-denied').innerText()).toContain('may not read services')
    expect(await page.locator('#metrics').isVisible()).toBe(false)
    await here.lessor.propose(acquire('eve', ['jobs/new']))
    await page.locator('#resources tbody tr', { hasText: 'eve' }).waitFor()

    await page.locator('#other-key').click()
    await page.locator('#key-form').waitFor()
    await enter(page, reader)
    await page.locator('#status[data-state=looking]').waitFor()
    expect(await page.locator('#resources tbody tr').count()).toBe(2)
    expect(await page.locator('#events-denied').innerText()).toContain('may not watch')

    await page.locator('#other-key').click()
    await page.locator('#key-form').waitFor()
    await enter(page, none)
    await page.locator('#resources-denied', { hasText: 'may not read resources' }).waitFor()
    expect(await page.locator('#resources-empty').isVisible()).toBe(false)
  })

  test('it shows the error of a server that cannot answer, and removes it after the next good answer', async () => {
    await using here = await world()
    await using tab = await openTab(here)
    const { page } = tab
    await page.locator('#status[data-state=live]').waitFor()
    const body = JSON.stringify({ error: { code: 'UNAVAILABLE', message: 'the store does not answer' } })
    await page.route('**/v1/resources?**', route => route.fulfill({ status: 503, contentType: 'application/json', body }))
    await page.reload()
    await page.locator('#error', { hasText: 'the store does not answer' }).waitFor()
    await page.unroute('**/v1/resources?**')
    await page.locator('#status[data-state=live]').waitFor()
    expect(await page.locator('#error').isVisible()).toBe(false)
  })

  test('it shows the age of its data while the server is unreachable, and continues when the server is back', async () => {
    await using here = await world()
    await here.lessor.propose(acquire('ann', ['a']))
    await using tab = await openTab(here)
    const { page } = tab
    await page.locator('#status[data-state=live]').waitFor()
    await here.server.close()
    await page.locator('#status[data-state=lost]').waitFor()
    expect(await page.locator('#status-text').innerText()).toMatch(/^reconnecting, as of .* s ago$/)
    expect(await page.locator('#resources tbody tr').count()).toBe(1)
    await using again = await world({ listen: `127.0.0.1:${here.port}` })
    await again.lessor.propose(acquire('bob', ['b']))
    await page.locator('#status[data-state=live]').waitFor()
    await page.locator('#resources tbody tr', { hasText: 'bob' }).waitFor()
  })

  test('it asks for a key if the server requires one, and keeps the key in the tab and out of every URL', async () => {
    await using here = await world()
    const key = await here.key('root', [{ verb: 'admin', prefix: '' }])
    await here.lessor.propose(acquire('ann', ['a']))
    await using tab = await openTab(here)
    const { page, requested } = tab
    await page.locator('#key-form').waitFor()
    await page.locator('#key').fill('wrong')
    await page.locator('#key-form button').click()
    await page.locator('#key-note', { hasText: 'does not know' }).waitFor()
    await page.locator('#key').fill(key)
    await page.locator('#key-form button').click()
    await page.locator('#resources tbody tr', { hasText: 'ann' }).waitFor()
    await page.locator('#key-form').waitFor({ state: 'hidden' })
    await page.reload()
    await page.locator('#resources tbody tr', { hasText: 'ann' }).waitFor()
    for (const url of [...requested, page.url()]) expect(url).not.toContain(key)
    expect(await page.evaluate('[localStorage.length, document.cookie]')).toEqual([0, ''])
  })

  test('no name, value or label is ever run as code or markup', async () => {
    await using here = await world()
    for (const [i, payload] of PAYLOADS.entries()) {
      const name = payload.split('/').filter(Boolean).join('∕') // a segment of a name has no slash
      const first = (await here.lessor.propose(
        acquire(payload.replaceAll(/\/+/g, '∕'), [`r/${name}/${i}`], {
          entries: [
            {
              key: `services/${name}/${name}${i}`,
              value: JSON.stringify({
                addresses: [payload],
                address: payload,
                capabilities: [payload],
                tags: [payload],
                zone: payload,
                metadata: { x: payload },
              }),
            },
            { key: `services/${name}/${name}${i}/state`, value: JSON.stringify({ status: payload }) },
            { key: `services/raw/${i}`, value: payload },
          ],
          labels: [['x', payload]],
        }),
      )) as { kind: string; lease: number }
      expect(first, payload).toMatchObject({ kind: 'granted' })
      await here.lessor.propose(acquire(`${payload.replaceAll(/\/+/g, '∕')} waits`, [`r/${name}/${i}`], { wait: true }))
    }
    await using tab = await openTab(here)
    const { page, requested, errors } = tab
    await page.evaluate("globalThis.ran = n => { document.body.dataset.ran = (document.body.dataset.ran ?? '') + ' ' + n }")
    await page
      .locator('#resources tbody tr')
      .nth(PAYLOADS.length - 1)
      .waitFor()
    expect(await page.locator('#agents').innerText()).toContain('<img src=x onerror=ran(2)>')
    // Events carry them too: causes, operators, values.
    for (const payload of PAYLOADS) await here.lessor.propose({ kind: 'break', resource: 'free', by: payload }).catch(() => {})
    const { value } = await here.lessor.read({ kind: 'leases' })
    for (const [i, { lease }] of value.slice(0, 20).entries())
      await here.lessor.propose({ kind: 'revoke', target: { lease }, by: PAYLOADS[i]!, force: true })
    await page.locator('#events li').nth(20).waitFor()
    for (const text of PAYLOADS.slice(0, 5)) {
      await page.locator('#filter').fill(text)
      await page.waitForTimeout(20)
    }
    await page.locator('#filter').fill('')
    expect(await page.evaluate('document.body.dataset.ran')).toBeUndefined()
    const foreign = 'main script, iframe, object, embed, main svg, main img, main style, main link, base, template, video'
    expect(await page.locator(foreign).count()).toBe(0)
    const links = await page.locator('main a').evaluateAll(found => found.map(link => (link as unknown as URL).protocol))
    expect(links.every(protocol => protocol === 'http:' || protocol === 'https:')).toBe(true)
    expect(requested.filter(url => !url.startsWith(here.url))).toEqual([])
    expect(errors).toEqual([])
  }, 60_000)

  test('the HTTP client runs in a browser without a build step', async () => {
    const built = join(root, 'dist/wire/http/client.js')
    expect(existsSync(built), 'run first: npm run build').toBe(true)
    await using here = await world()
    await using tab = await openTab(here)
    const { page, errors } = tab
    await page.route('**/built/**', async route => {
      const path = new URL(route.request().url()).pathname.replace('/built/', '')
      await route.fulfill({ contentType: 'text/javascript', body: await readFile(join(root, 'dist', path), 'utf8') })
    })
    // As a string, so that it is not compiled for Node first.
    const result = await page.evaluate(`(async () => {
      const { HttpLessor } = await import('/built/wire/http/client.js')
      const lessor = await HttpLessor.open(location.origin)
      const { revision } = await lessor.read({ kind: 'summary' }, { consistent: true })
      const granted = await lessor.propose({ kind: 'acquire', holder: 'browser', ttl: 5000, wants: [{ resource: 'a' }] })
      const stop = new AbortController()
      const events = []
      for await (const batch of lessor.watch('', { after: revision, signal: stop.signal })) {
        events.push(batch[0].type)
        if (events.length === 1) await lessor.propose({ kind: 'release', lease: granted.lease })
        else stop.abort()
      }
      return [granted.kind, ...events]
    })()`)
    expect(result).toEqual(['granted', 'granted', 'released'])
    expect(errors).toEqual([])
  })
})
