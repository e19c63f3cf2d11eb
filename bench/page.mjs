// Benchmark of the page in a real browser: 100,000 rows, 1,000 events a second, and what the history of the last day costs the server.

import { percentile } from './measure.mjs'
import { DROPPED, frames, openPage, pageHeap, pageServer } from './page-browser.mjs'
import { historyCpu, historyMemory } from './page-history.mjs'
import { atMost } from './row.mjs'

const ROWS = 100_000
const EVENTS = 1_000

/** Ms from an action in the page until `shown` is true in a frame, as a person sees it. The best and the worst of several, and their median. */
async function interaction(page, actions) {
  const took = []
  for (const { act, shown } of actions) {
    took.push(
      await page.evaluate(`new Promise(resolve => {
        const began = performance.now()
        const look = () => ((${shown}) ? resolve(performance.now() - began) : requestAnimationFrame(look))
        ;{ ${act} }
        look()
      })`),
    )
    // The next one begins with a page that has come to rest.
    await page.waitForTimeout(300)
  }
  return took.sort((a, b) => a - b)
}

const firstRow = `document.querySelector('.sizer .row')?.textContent ?? ''`
const total = `document.querySelector('.total')?.textContent ?? ''`
const go = hash => `location.hash = ${JSON.stringify(hash)}`
const sortBy = title => `[...document.querySelectorAll('button.sort')].find(one => one.textContent.startsWith('${title}')).click()`
const typeInto = (id, text) =>
  `(() => { const box = document.querySelector('#${id}'); box.value = ${JSON.stringify(text)}; box.dispatchEvent(new Event('input', { bubbles: true })) })()`

function reportInteraction(report, name, took) {
  report({ name: `${name}, median`, unit: 'ms', value: percentile(took, 0.5), want: atMost(100) })
  report({ name: `${name}, worst of ${took.length}`, unit: 'ms', value: took.at(-1) })
}

export async function longTables(report, { quick }) {
  const times = quick ? 3 : 7
  const server = await pageServer()
  const { page, [Symbol.asyncDispose]: close } = await openPage(`${server.url}/#/policies`)
  try {
    await server.ask('fill', ROWS)
    // The page has received an event for each lease. It is measured when it has come to rest.
    await page.waitForTimeout(quick ? 1_500 : 6_000)
    await server.ask('figures')
    // Each has an order of its own, so the server has none of them yet.
    const all = ['resources', 'leases', 'resources?state=held', 'leases?state=live', 'resources?sort=-name', 'leases?sort=holder']
    const views = all.slice(0, quick ? 3 : all.length)
    const opened = []
    for (const view of views) {
      const shown = `(${total}).startsWith('100,000') && (${firstRow}) !== ''`
      opened.push(...(await interaction(page, [{ act: go(`#/${view}`), shown }])))
      await interaction(page, [{ act: go('#/policies'), shown: `document.querySelector('.sizer') === null` }])
    }
    opened.sort((a, b) => a - b)
    reportInteraction(report, `${ROWS.toLocaleString('en')} rows: first list`, opened)
    await interaction(page, [{ act: go('#/resources'), shown: `(${firstRow}).includes('jobs/000000')` }])
    const sorts = Array.from({ length: times }, (_, i) => ({
      act: `window.before = ${firstRow}; ${sortBy(['Holder', 'Time left', 'Token', 'Held for', 'Resource', 'Waiting', 'Holder'][i % 7])}`,
      shown: `(${firstRow}) !== '' && (${firstRow}) !== window.before`,
    }))
    reportInteraction(
      report,
      'sort',
      await interaction(
        page,
        sorts.filter((_, i) => i !== 5),
      ),
    )
    const filters = Array.from({ length: times }, (_, i) => ({
      act: typeInto('filter-text', `jobs/0${i}12`),
      shown: `(${firstRow}).includes('jobs/0${i}12')`,
    }))
    reportInteraction(report, 'filter by text', await interaction(page, filters))
    await interaction(page, [{ act: typeInto('filter-text', ''), shown: `(${total}).startsWith('100,000')` }])
    await interaction(page, [{ act: go('#/resources?sort=name'), shown: `(${firstRow}).includes('jobs/000000')` }])
    const scrolls = Array.from({ length: times }, (_, i) => {
      const row = 9_000 + i * 13_000
      return {
        act: `(() => { const box = document.querySelector('.rows'); box.scrollTop = ${row} * document.querySelector('.sizer').clientHeight / ${ROWS} })()`,
        shown: `[...document.querySelectorAll('.sizer .row')].some(one => one.textContent.includes('jobs/${String(row).padStart(6, '0')}'))`,
      }
    })
    reportInteraction(report, 'scroll to another place', await interaction(page, scrolls))
    const { longest } = await server.ask('figures')
    report({ name: 'longest turn of the server meanwhile', unit: 'ms', value: longest })
  } finally {
    await close()
    await server[Symbol.asyncDispose]()
  }
}

export async function manyEvents(report, { quick }) {
  const server = await pageServer()
  const { page, [Symbol.asyncDispose]: close } = await openPage(`${server.url}/#/now`)
  try {
    const [paint] = await page.evaluate(`performance.getEntriesByName('first-contentful-paint').map(({ startTime }) => startTime)`)
    report({ name: 'first paint', unit: 'ms', value: paint, want: atMost(1_000) })
    await server.ask('load', EVENTS)
    const share = async () => {
      const gaps = await frames(page, quick ? 2 : 8)
      return { dropped: (100 * gaps.filter(gap => gap > DROPPED).length) / gaps.length, longest: gaps.at(-1) }
    }
    const views = {}
    for (const view of ['now', 'events', 'resources']) {
      await page.evaluate(go(`#/${view}`))
      await page.waitForTimeout(quick ? 1_000 : 2_000)
      views[view] = await share()
    }
    const heap = await pageHeap(page)
    // Counts the frames that the browser drops by itself on this machine, beside the same server under the same load.
    await page.goto('about:blank')
    await page.waitForTimeout(quick ? 1_000 : 2_000)
    const empty = await share()
    for (const [view, { dropped, longest }] of Object.entries(views)) {
      const name = `${EVENTS.toLocaleString('en')} events/s, ${view}`
      report({ name: `${name}: frames dropped`, unit: '%', value: dropped, want: atMost(0) })
      report({ name: `${name}: longest frame`, unit: 'ms', value: longest })
    }
    report({ name: 'an empty page instead: frames dropped', unit: '%', value: empty.dropped })
    report({ name: 'an empty page instead: longest frame', unit: 'ms', value: empty.longest })
    report({ name: 'heap of the page', unit: 'MB', value: heap / 1e6 })
  } finally {
    await close()
    await server[Symbol.asyncDispose]()
  }
}

export async function page(report, settings) {
  await longTables(report, settings)
  await manyEvents(report, settings)
  await historyCpu(report, EVENTS, settings)
  historyMemory(report)
}
