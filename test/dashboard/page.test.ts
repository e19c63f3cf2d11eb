/** The dashboard in a real browser: keys, faults, hostile data, and the limits that it must keep. */
import { existsSync, readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { Lessor } from '../../src/lessor.ts'
import type { FailedAppend } from '../../src/server/store-watch.ts'
import { launch, openTab } from '../support/dashboard-browser.ts'
import { acquire, granted } from '../support/dashboard-world.ts'
import { describeWith } from '../support/engine.ts'
import { world } from '../support/http-world.ts'

/** What the page has of the client. */
interface InPage {
  readonly HttpLessor: { open(url: string): Promise<Lessor> }
  readonly propose: typeof propose
}

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Bytes of everything that the page loads, compressed. */
const MAX_BUNDLE = 82_000

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

test('everything that the page loads is at most 82 kB, compressed', () => {
  const files = ['index.html', 'page.js', 'page.css', 'page.svg'].map(name => join(root, 'dist/dashboard', name))
  expect(
    files.filter(file => !existsSync(file)),
    'run first: npm run build',
  ).toEqual([])
  expect(files.reduce((sum, file) => sum + gzipSync(readFileSync(file)).length, 0)).toBeLessThanOrEqual(MAX_BUNDLE)
})

test('the page cannot be framed, loads nothing from elsewhere and runs no inline script', async () => {
  await using here = await world()
  for (const path of ['/', '/page.js', '/page.css', '/page.svg']) {
    const { status, headers } = await here.ask('GET', path)
    expect(status).toBe(200)
    expect(headers['x-frame-options']).toBe('DENY')
    const policy = String(headers['content-security-policy'])
    for (const rule of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"])
      expect(policy).toContain(rule)
    expect(policy).not.toContain('unsafe')
  }
  const { text } = await here.ask('GET', '/')
  expect(text).not.toMatch(/<script(?![^>]* src=)|<style| style=| on[a-z]+=/i)
})

describeWith([{ program: 'chromium', packages: ['chromium'] }], 'the dashboard', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await launch()
  })
  afterAll(() => browser?.close())

  const live = (page: Page) => page.locator('#status[data-state=live]').waitFor()

  async function enter(page: Page, key: string): Promise<void> {
    await page.locator('#key').fill(key)
    await page.locator('#key-form button').click()
  }

  test('a page of the server’s own origin can acquire, renew, watch and release with the HTTP client, and a frozen tab learns of its loss with the next request', async () => {
    await using here = await world()
    await using tab = await openTab(browser, `${here.url}/`)
    const { page, errors } = tab
    await page.route('**/client/**', async (route, request) =>
      route.fulfill({
        contentType: 'text/javascript',
        body: await readFile(join(root, 'dist', new URL(request.url()).pathname.slice('/client/'.length))),
      }),
    )
    const body =
      "import { HttpLessor } from './wire/http/client.js'; import { propose } from './lessor/propose.js'; Object.assign(globalThis, { HttpLessor, propose })"
    await page.route('**/client/index.js', route => route.fulfill({ contentType: 'text/javascript', body }))
    await page.addScriptTag({ type: 'module', url: '/client/index.js' })
    const first = await page.evaluate(async url => {
      const { HttpLessor, propose } = globalThis as unknown as InPage
      const lessor = await HttpLessor.open(url)
      const events: string[] = []
      const watching = (async () => {
        for await (const batch of lessor.watch('k', { signal: new AbortController().signal }))
          for (const { type } of batch) events.push(type)
      })()
      watching.catch(() => {})
      const granted = async () => {
        const outcome = await propose(lessor, { kind: 'acquire', holder: 'tab', ttl: 5_000, wants: [{ resource: 'k' }] })
        return outcome.kind === 'granted' ? outcome.lease : 0
      }
      const lease = await granted()
      const renewed = await propose(lessor, { kind: 'renew', leases: [lease] })
      const released = await propose(lessor, { kind: 'release', lease })
      Object.assign(globalThis, { lessor, events, lease: await granted() })
      return [renewed, released]
    }, here.url)
    expect(first).toMatchObject([{ ttls: [5_000] }, { kind: 'done' }])
    await here.clock.advance(20_000)
    const later = await page.evaluate(async () => {
      const { lessor, lease, propose } = globalThis as unknown as InPage & { lessor: Lessor; lease: number }
      return propose(lessor, { kind: 'renew', leases: [lease] })
    })
    expect(later).toMatchObject({ ttls: [-1] })
    const events = () => page.evaluate(() => (globalThis as unknown as { events: string[] }).events)
    await expect.poll(events).toEqual(['granted', 'released', 'granted', 'lapsed'])
    expect(errors).toEqual([])
  })

  test('it shows holders, follows events without a reload, and keeps its state in the address', async () => {
    await using here = await world()
    const lease = await granted(here, acquire('ann', ['jobs/nightly']))
    await granted(here, acquire('bob', ['jobs/nightly'], { wait: true }))
    await using tab = await openTab(browser, `${here.url}/#/resources`)
    const { page, requested, errors } = tab
    const row = page.locator('.sizer .row', { hasText: 'jobs/nightly' })
    await row.waitFor()
    expect(await row.locator('.cell').nth(1).innerText()).toContain('ann')
    expect(await row.locator('.cell').nth(4).innerText()).toMatch(/^\d+(\.\d)? s$/)
    expect(await row.locator('.cell').nth(5).innerText()).toMatch(/^1/)
    await live(page)
    await propose(here.lessor, { kind: 'release', lease })
    // The clock of the server stands still: only the event can have caused it.
    await row.locator('.cell:nth-child(2)', { hasText: 'bob' }).waitFor()
    await granted(here, acquire('eve', ['new/one']))
    await page.locator('.sizer .row', { hasText: 'new/one' }).waitFor()
    await page.locator('#filter-text').fill('new/')
    await row.waitFor({ state: 'detached' })
    await expect.poll(() => page.url()).toContain('text=new%2F')
    await page.reload()
    await page.locator('.sizer .row', { hasText: 'new/one' }).waitFor()
    expect(await page.locator('#filter-text').inputValue()).toBe('new/')
    expect(await page.locator('.sizer .row').count()).toBe(1)
    // By keyboard: the first row, and its resource.
    await page.locator('[role=grid]').focus()
    await page.keyboard.press('ArrowDown')
    await page.keyboard.press('Enter')
    await page.locator('h1', { hasText: 'new/one' }).waitFor()
    await page.keyboard.press('g')
    await page.keyboard.press('v')
    await page.locator('h1', { hasText: 'Events' }).waitFor()
    await page.locator('.events [data-type=released]').waitFor()
    expect(errors).toEqual([])
    for (const url of requested) expect(url.startsWith(here.url)).toBe(true)
  })

  test('events begin with what the server still knows, can be filtered, and stand still while paused', async () => {
    await using here = await world()
    await here.ask('GET', '/v1/overview')
    await propose(here.lessor, { kind: 'release', lease: await granted(here, acquire('before', ['jobs/old'])) })
    await using tab = await openTab(browser, `${here.url}/#/events`)
    const { page } = tab
    await page.locator('.events li', { hasText: 'jobs/old' }).first().waitFor()
    await live(page)
    await granted(here, acquire('ann', ['jobs/live']))
    await page.locator('.events li', { hasText: 'jobs/live' }).waitFor()
    await page.locator('#pause').click()
    await granted(here, acquire('ann', ['jobs/later']))
    await page.locator('#filter-text').fill('jobs/')
    await expect.poll(() => page.locator('.events li').count()).toBe(3)
    expect(await page.locator('main').innerText()).not.toContain('jobs/later')
    await page.locator('#pause').click()
    await page.locator('.events li', { hasText: 'jobs/later' }).waitFor()
    await page.locator('#filter-types').selectOption('ends')
    await expect.poll(() => page.locator('.events li').allInnerTexts()).toEqual([expect.stringContaining('released')])
  })

  test('an empty server shows the lines that fill each view', async () => {
    await using here = await world()
    await using tab = await openTab(browser, `${here.url}/`)
    const { page, errors } = tab
    for (const [view, line] of [
      ['now', 'leasehold run jobs/nightly'],
      ['resources', 'leasehold run jobs/nightly'],
      ['services', 'leasehold register'],
      ['elections', 'leasehold elect'],
      ['pools', 'leasehold pool offer'],
      ['sessions', 'leases.session'],
      ['claims', 'leasehold mcp'],
      ['events', 'leasehold run jobs/nightly'],
      ['policies', 'leasehold policy set'],
    ]) {
      await page.goto(`${here.url}/#/${view}`)
      await page.locator('.empty pre', { hasText: line! }).first().waitFor()
      expect((await page.locator('.empty pre').first().innerText()).trim().split('\n')).toHaveLength(3)
    }
    expect(errors).toEqual([])
  })

  test('it says since when it is stale while the server is unreachable, and recovers by itself', async () => {
    await using here = await world()
    await granted(here, acquire('ann', ['a']))
    await using tab = await openTab(browser, `${here.url}/#/resources`)
    const { page } = tab
    await page.locator('.sizer .row', { hasText: 'ann' }).waitFor()
    await live(page)
    await here.server.close()
    await page.locator('#status[data-state=lost]', { hasText: /^stale since \d+ s/ }).waitFor()
    await page.locator('#stale').waitFor()
    expect(await page.locator('.sizer .row').count()).toBe(1)
    await using again = await world({ listen: `127.0.0.1:${here.port}` })
    await granted(again, acquire('bob', ['b']))
    await live(page)
    await page.locator('.sizer .row', { hasText: 'bob' }).waitFor()
    await page.locator('#stale').waitFor({ state: 'detached' })
  })

  test('it shows the error of a server that cannot answer, and removes it after the next good answer', async () => {
    await using here = await world()
    await granted(here, acquire('ann', ['a']))
    await using tab = await openTab(browser, `${here.url}/#/now`)
    const { page } = tab
    await page.locator('.holders', { hasText: 'ann' }).waitFor()
    const body = JSON.stringify({ error: { code: 'UNAVAILABLE', message: 'the store does not answer <b>' } })
    for (const path of ['**/v1/overview', '**/v1/events?**'])
      await page.route(path, route => route.fulfill({ status: 503, contentType: 'application/json', body }))
    await page.reload()
    await page.locator('#stale', { hasText: 'the store does not answer <b>' }).waitFor()
    await page.unrouteAll()
    await live(page)
    await page.locator('.holders', { hasText: 'ann' }).waitFor()
    await page.locator('#stale').waitFor({ state: 'detached' })
  })

  test('it says since when the store accepts no writes, why, and what still works, in every view, until it does again', async () => {
    let failed: FailedAppend | undefined
    await using here = await world({ failedAppend: () => failed })
    await granted(here, acquire('ann', ['a']))
    await using tab = await openTab(browser, `${here.url}/#/resources`)
    const { page } = tab
    await live(page)
    failed = { error: new LeaseError('UNAVAILABLE', 'no space left <b>on the disk', { reason: 'full' }), at: here.clock.now() }
    await page.locator('#status[data-state=down]', { hasText: /^not writable for/ }).waitFor()
    await page.locator('#store-down', { hasText: 'no space left <b>on the disk. Nothing is granted' }).waitFor()
    expect(await page.locator('.sizer .row', { hasText: 'ann' }).count()).toBe(1)
    await page.goto(`${here.url}/#/events`)
    await page.locator('#store-down').waitFor()
    failed = undefined
    await live(page)
    await page.locator('#store-down').waitFor({ state: 'detached' })
  })

  test('it asks for a key if the server requires one, and keeps the key in the tab and out of every URL', async () => {
    await using here = await world()
    const key = await here.key('root', [{ verb: 'admin', prefix: '' }])
    await granted(here, acquire('ann', ['a']))
    await using tab = await openTab(browser, `${here.url}/#/resources`)
    const { page, requested } = tab
    await page.locator('#key-form').waitFor()
    expect(await page.locator('nav').count()).toBe(0)
    await enter(page, 'wrong')
    await page.locator('#key-problem', { hasText: 'does not know' }).waitFor()
    await enter(page, key)
    await page.locator('.sizer .row', { hasText: 'ann' }).waitFor()
    await page.locator('.who summary').click()
    expect(await page.locator('.sheet').innerText()).toMatch(/root[\s\S]*admin everything/)
    await page.reload()
    await page.locator('.sizer .row', { hasText: 'ann' }).waitFor()
    for (const url of [...requested, page.url()]) expect(url).not.toContain(key)
    expect(await page.evaluate('[localStorage.length, document.cookie]')).toEqual([0, ''])
    const other = await page.context().newPage()
    await other.goto(`${here.url}/`)
    await other.locator('#key-form').waitFor()
  })

  test('a key sees only what it may read, and is offered only what it may do', async () => {
    await using here = await world()
    await here.key('root', [{ verb: 'admin', prefix: '' }])
    const reader = await here.key('reader', [
      { verb: 'read', prefix: 'jobs' },
      { verb: 'watch', prefix: 'jobs' },
    ])
    const operator = await here.key('ops', [
      { verb: 'read', prefix: 'jobs' },
      { verb: 'break', prefix: 'jobs' },
    ])
    await granted(here, acquire('ann', ['jobs/seen']))
    await granted(here, acquire('secret-holder', ['pay/hidden']))
    await using tab = await openTab(browser, `${here.url}/#/resources`)
    const { page } = tab
    await enter(page, reader)
    await page.locator('.sizer .row', { hasText: 'jobs/seen' }).waitFor()
    expect(await page.locator('.sizer .row').count()).toBe(1)
    await page.goto(`${here.url}/#/resource/jobs/seen`)
    await page.locator('.holders', { hasText: 'ann' }).waitFor()
    expect(await page.locator('.title button').count()).toBe(0)
    expect(await page.locator('main').innerText()).not.toContain('release\n')
    for (const view of ['now', 'resources', 'leases', 'services', 'elections', 'pools', 'sessions', 'claims', 'events', 'policies']) {
      await page.goto(`${here.url}/#/${view}`)
      await page.locator('main h1, main .empty').first().waitFor({ state: 'attached' })
      expect(await page.locator('#page').innerText(), view).not.toMatch(/secret-holder|pay\/hidden/)
    }
    await page.locator('.who summary').click()
    await page.locator('#other-key').click()
    await page.locator('#key-form').waitFor()
    await enter(page, operator)
    await page.goto(`${here.url}/#/resource/jobs/seen`)
    await page.locator('.title button', { hasText: 'Break' }).waitFor()
    await page.locator('.notice', { hasText: 'may not watch events' }).waitFor()
    expect(await page.locator('.title button').allInnerTexts()).toEqual(['Break'])
  })

  test('a key that is revoked is shown out at once, with everything that it showed', async () => {
    await using here = await world()
    await here.key('root', [{ verb: 'admin', prefix: '' }])
    const key = await here.key('guest', [
      { verb: 'read', prefix: '' },
      { verb: 'watch', prefix: '' },
    ])
    await granted(here, acquire('ann', ['jobs/nightly']))
    await using tab = await openTab(browser, `${here.url}/#/resources`)
    const { page } = tab
    await enter(page, key)
    await page.locator('.sizer .row', { hasText: 'ann' }).waitFor()
    await live(page)
    const { value } = await here.lessor.read({ kind: 'keys' })
    await propose(here.lessor, { kind: 'unkey', id: value.find(({ name }) => name === 'guest')!.id })
    await page.locator('#key-problem', { hasText: 'revoked' }).waitFor()
    expect(await page.locator('#page').innerText()).not.toContain('jobs/nightly')
    expect(await page.evaluate('sessionStorage.length')).toBe(0)
  })

  test('no name, value or label is ever run as code or markup, and none breaks the layout', async () => {
    await using here = await world()
    await here.ask('GET', '/v1/overview')
    const segment = (payload: string) => payload.split('/').filter(Boolean).join('∕') // a segment of a name has no slash
    for (const [i, payload] of PAYLOADS.entries()) {
      const name = segment(payload)
      const holder = payload.replaceAll(/\/+/g, '∕')
      const entries = [
        {
          key: `services/${name}/${name}${i}`,
          value: JSON.stringify({
            addresses: [i % 2 === 1 ? 'http://10.0.0.7:80' : payload],
            capabilities: [payload],
            tags: [payload],
            metadata: { name: payload, description: payload, skills: [{ name: payload, description: payload }] },
          }),
        },
        { key: `services/${name}/${name}${i}/state`, value: JSON.stringify({ status: payload }) },
        { key: `services/raw/${i}`, value: payload },
        { key: `pool/gpus/${name}${i}`, value: JSON.stringify({ labels: { [payload]: payload }, units: 1 }) },
        {
          key: `devices/gpus/${name}${i}`,
          value: JSON.stringify({
            host: payload,
            processes: [{ pid: 1, user: payload, name: payload, lease: 0 }],
            more: 0,
            unleased: 1,
            idle: 0,
            stage: 'none',
            problem: payload,
          }),
        },
      ]
      const labels = [
        ['kind', 'claim'],
        ['purpose', payload],
        [payload, payload],
      ] as const
      const lease = await granted(here, acquire(holder, [`r/${name}/${i}`], { entries, labels }))
      await granted(here, acquire(`${holder} waits`, [`r/${name}/${i}`], { wait: true }))
      if (i < 6) await granted(here, acquire(holder, [`election/${name}`], { parent: lease, labels: [['kind', 'agent']] }))
    }
    const long = 'long-name-without-a-break-'.repeat(18)
    await granted(here, acquire(long, [`r/${long}`], { labels: [['purpose', long]] }))
    const name = `r/${segment(PAYLOADS[1]!)}/1`
    await propose(here.lessor, { kind: 'break', resource: name, after: 60_000, by: PAYLOADS[1]! })
    await propose(here.lessor, { kind: 'policy', prefix: `r/${segment(PAYLOADS[2]!)}`, rules: { capacity: 2 } })
    await using tab = await openTab(browser, `${here.url}/`)
    const { page, requested, errors } = tab
    await page.evaluate(
      "globalThis.ran = n => { document.documentElement.dataset.ran = (document.documentElement.dataset.ran ?? '') + ' ' + n }",
    )
    const path = (...names: readonly string[]) =>
      names
        .flatMap(part => part.split('/'))
        .map(encodeURIComponent)
        .join('/')
    const service = segment(PAYLOADS[1]!)
    const views: readonly (readonly [string, string])[] = [
      ['now', '<img src=x onerror=ran(2)>'],
      ['resources', 'ran('],
      [`resources?prefix=r/${encodeURIComponent(long)}`, 'long-name'],
      ['leases', 'ran('],
      [`resource/${path(name)}`, '<img src=x onerror=ran(2)>'],
      ['services', 'ran('],
      [`services/${path(service)}`, 'ran('],
      [`services/${path(service, `${service}1`)}`, 'Agent card'],
      ['elections', 'ran('],
      ['pools', 'gpus'],
      [`pools/gpus?member=${encodeURIComponent(`${service}1`)}`, 'no lease'],
      ['sessions', 'ran('],
      ['claims', 'ran('],
      ['policies', 'ran('],
      ['events', 'ran('],
      [`events?text=${encodeURIComponent(PAYLOADS[3]!)}`, 'events'],
      [`resource/${path(PAYLOADS[5]!)}`, 'free'],
    ]
    for (const [view, text] of views) {
      await page.goto(`${here.url}/#/${view}`)
      await page.locator('main', { hasText: text }).waitFor()
      const foreign =
        'main script, main iframe, main object, main embed, main svg, main img, main style, main link, main video, base, main template'
      expect(await page.locator(foreign).count(), view).toBe(0)
      const links = await page.locator('main a').evaluateAll(found => found.map(link => (link as unknown as URL).protocol))
      expect(
        links.every(protocol => protocol === 'http:' || protocol === 'https:'),
        view,
      ).toBe(true)
      expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth'), view).toBe(true)
    }
    expect(await page.evaluate('document.documentElement.dataset.ran')).toBeUndefined()
    expect(requested.filter(url => !url.startsWith(here.url))).toEqual([])
    expect(errors.filter(text => !/status of 40[04]/.test(text))).toEqual([])
  })

  test('the HTTP client runs in a browser without a build step', async () => {
    const built = join(root, 'dist/wire/http/client.js')
    expect(existsSync(built), 'run first: npm run build').toBe(true)
    await using here = await world()
    await using tab = await openTab(browser, `${here.url}/`)
    const { page, errors } = tab
    await page.route('**/built/**', async route => {
      const path = new URL(route.request().url()).pathname.replace('/built/', '')
      await route.fulfill({ contentType: 'text/javascript', body: await readFile(join(root, 'dist', path), 'utf8') })
    })
    // As a string, so that it is not compiled for Node first.
    const result = await page.evaluate(`(async () => {
      const { HttpLessor, propose } = await import('/built/wire/http/client.js')
      const lessor = await HttpLessor.open(location.origin)
      const { revision } = await lessor.read({ kind: 'summary' }, { consistent: true })
      const granted = await propose(lessor, { kind: 'acquire', holder: 'browser', ttl: 5000, wants: [{ resource: 'a' }] })
      const stop = new AbortController()
      const events = []
      for await (const batch of lessor.watch('', { after: revision, signal: stop.signal })) {
        events.push(batch[0].type)
        if (events.length === 1) await propose(lessor, { kind: 'release', lease: granted.lease })
        else stop.abort()
      }
      return [granted.kind, ...events]
    })()`)
    expect(result).toEqual(['granted', 'granted', 'released'])
    expect(errors).toEqual([])
  })
})
