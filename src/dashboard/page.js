/**
 * A small live page. What it is told it writes as text, never as markup; it asks nobody but the server it came from, and a key goes out in a header,
 * never in an address. Events say what to look at again; renewals make no events, so all is looked at again now and then.
 */
const LIST = 300
const EVENTS = 60
const TOGETHER = 200
const REFRESH = 5_000
const SILENCE = 40_000
const KEY = 'leasehold-key'

const $ = id => document.getElementById(id)
const resources = new Map()
const agents = new Map()
/** When what is shown was true, on this page's own clock. */
let fetchedAt = 0
let heardAt = 0
let live = false
let revision = 0
let filter = ''
let looking = false
let again = false
let needsKey = false

/** An element with text and children; a string is text and nothing else. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name)
  for (const [property, value] of Object.entries(properties)) {
    if (property === 'class') made.className = value
    else if (property === 'data') Object.assign(made.dataset, value)
    else made[property] = value
  }
  made.append(...children)
  return made
}

function headers(more = {}) {
  const key = sessionStorage.getItem(KEY)
  return key === null ? more : { ...more, authorization: `Bearer ${key}` }
}

async function ask(path, { signal, accept = 'application/json' } = {}) {
  const answer = await fetch(path, { headers: headers({ accept }), cache: 'no-store', ...(signal && { signal }) })
  if (answer.status === 401) {
    needsKey = true
    $('key-form').hidden = false
    if (sessionStorage.getItem(KEY) !== null) {
      sessionStorage.removeItem(KEY)
      $('key-note').textContent = 'That key is not known here, or was revoked.'
    }
    throw new Error('a key is needed')
  }
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`)
  needsKey = false
  $('key-form').hidden = true
  return answer
}

// What is there

/** One look at a time; whoever asks meanwhile is served by the next. */
async function look() {
  if (looking) {
    again = true
    return
  }
  looking = true
  try {
    const [held, registered] = await Promise.all([
      ask(`/v1/resources?limit=${LIST}`).then(answer => answer.json()),
      ask(`/v1/entries?prefix=services&limit=${LIST * 3}`).then(answer => answer.json()),
    ])
    fetchedAt = performance.now()
    revision = Math.max(revision, held.revision)
    resources.clear()
    for (const resource of held.resources) resources.set(resource.resource, resource)
    $('resources-more').hidden = held.more !== true
    $('resources-more').textContent = `The first ${LIST} are shown.`
    take(registered.entries)
    draw()
  } finally {
    looking = false
    if (again) {
      again = false
      setTimeout(() => look().catch(() => {}), TOGETHER)
    }
  }
}

/** `services/SERVICE/INSTANCE` is a registration; `…/state` and `…/check` say how it is. */
function take(entries) {
  agents.clear()
  for (const { key, value, status, holder } of entries) {
    const [, service, instance, part] = key.split('/')
    if (instance === undefined) continue
    const name = `${service}/${instance}`
    const agent = agents.get(name) ?? { service, instance, holder, lease: status, said: {}, state: {} }
    if (part === undefined) Object.assign(agent, { said: parsed(value), holder, lease: status })
    else agent.state = { ...agent.state, ...parsed(value) }
    agents.set(name, agent)
  }
}

function parsed(text) {
  try {
    const value = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : { address: text }
  } catch {
    return { address: text }
  }
}

// Drawing

function draw() {
  drawResources()
  drawAgents()
  let waiting = 0
  let held = 0
  for (const { grants, queue } of resources.values()) {
    held += grants.length
    waiting += queue.length
  }
  $('count-held').textContent = String(held)
  $('count-waiting').textContent = String(waiting)
  $('count-agents').textContent = String(agents.size)
  $('count-revision').textContent = String(revision)
  $('count-revision').title = String(revision)
  tick()
}

/** Rows are kept by what they are about, so that what did not change does not flicker, and what is new can be seen. */
function drawRows(table, wanted, row) {
  const body = table.tBodies[0]
  const there = new Map([...body.rows].map(found => [found.dataset.key, found]))
  const first = body.rows.length === 0
  let place = body.firstElementChild
  for (const [key, item] of wanted) {
    const made = row(item)
    made.dataset.key = key
    made.dataset.shape = shapeOf(item)
    const old = there.get(key)
    there.delete(key)
    if (old !== undefined && old.dataset.shape === made.dataset.shape) {
      if (old === place) place = place.nextElementSibling
      else body.insertBefore(old, place)
      old.item = item
      continue
    }
    if (!first) made.classList.add('fresh')
    made.item = item
    if (old === place) place = place?.nextElementSibling ?? null
    body.insertBefore(made, place)
    old?.remove()
  }
  for (const gone of there.values()) gone.remove()
  table.hidden = body.rows.length === 0
  $(`${table.id}-empty`).hidden = !table.hidden
}

/** Everything but the time that passes. */
function shapeOf(item) {
  return JSON.stringify(item, (name, value) => (name === 'remaining' || name === 'revision' ? undefined : value))
}

function matches(...texts) {
  return (
    filter === '' ||
    texts.some(text =>
      String(text ?? '')
        .toLowerCase()
        .includes(filter),
    )
  )
}

function drawResources() {
  const wanted = [...resources].filter(([name, { grants, queue }]) => matches(name, ...[...grants, ...queue].map(({ holder }) => holder)))
  drawRows($('resources'), wanted, ({ resource, capacity, grants, queue }) => {
    const name = element('td', { class: 'name' }, resource)
    if (capacity !== 1) name.append(' ', element('span', { class: 'tag' }, `${capacity} units`))
    return element(
      'tr',
      {},
      name,
      element('td', {}, ...grants.map(holderLine)),
      element('td', {}, ...grants.map(({ token }) => element('div', { class: 'line number' }, String(token)))),
      element('td', {}, ...grants.map(timeLine)),
      element('td', {}, waitingLine(queue)),
    )
  })
}

function holderLine({ holder, status, units, shared }) {
  const line = element('div', { class: 'line' }, holder)
  if (status !== 'live') line.append(' ', element('span', { class: 'tag', data: { kind: status } }, status))
  if (shared) line.append(' ', element('span', { class: 'tag' }, 'shared'))
  if (units > 1) line.append(' ', element('span', { class: 'tag' }, `${units} units`))
  return line
}

function timeLine({ lease }) {
  return element(
    'div',
    { class: 'line left', data: { lease: String(lease) } },
    element('time', {}, ''),
    element('progress', { max: 1, value: 1 }),
  )
}

function waitingLine(queue) {
  const names = queue.slice(0, 3).map(({ holder }) => holder)
  return names.join(', ') + (queue.length > 3 ? ` and ${queue.length - 3} more` : '')
}

function drawAgents() {
  const wanted = [...agents].filter(([name, { said }]) => matches(name, addressOf(said), ...list(said.capabilities)))
  drawRows($('agents'), wanted, ({ service, instance, said, state, lease }) => {
    const status = lease === 'live' ? String(state.status ?? 'passing') : lease
    return element(
      'tr',
      {},
      element('td', { class: 'name' }, service),
      element('td', {}, instance),
      element('td', {}, link(addressOf(said))),
      element('td', {}, ...list(said.capabilities).map(can => element('span', { class: 'tag' }, can))),
      element('td', {}, element('span', { class: 'tag', data: { kind: status } }, status)),
    )
  })
}

function addressOf({ address, addresses }) {
  return String(address ?? list(addresses)[0] ?? '')
}

function list(value) {
  return Array.isArray(value) ? value.slice(0, 20).map(String) : []
}

/** Only what a browser opens as a page is a link. */
function link(text) {
  if (!/^https?:\/\/[^\s]+$/i.test(text) || !URL.canParse(text)) return text
  return element('a', { href: text, rel: 'noopener noreferrer', target: '_blank' }, text)
}

/** The full length of a lease is not told: the longest that was seen stands for it. */
const longest = new Map()

function tick() {
  const passed = performance.now() - fetchedAt
  for (const row of $('resources').tBodies[0].rows)
    for (const [i, line] of [...row.querySelectorAll('.left')].entries()) {
      const grant = row.item.grants[i]
      if (grant === undefined) continue
      const left = Math.max(0, grant.remaining - passed)
      longest.set(grant.lease, Math.max(longest.get(grant.lease) ?? 0, grant.remaining))
      line.firstElementChild.textContent = inWords(left)
      line.lastElementChild.value = left / Math.max(1, longest.get(grant.lease))
      line.classList.toggle('soon', left < 5_000)
    }
  if (longest.size > LIST * 4) longest.clear()
  drawStatus()
}

function inWords(ms) {
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`
  if (ms < 120_000) return `${Math.round(ms / 1_000)} s`
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${(ms / 3_600_000).toFixed(1)} h`
}

function drawStatus() {
  const age = fetchedAt === 0 ? undefined : performance.now() - Math.max(fetchedAt, live ? heardAt : 0)
  const state = live ? 'live' : fetchedAt === 0 || needsKey ? 'connecting' : 'lost'
  const old = age === undefined ? '' : `, as of ${inWords(age)} ago`
  $('status').dataset.state = state
  $('status-text').textContent = live ? 'live' : needsKey ? 'a key is needed' : fetchedAt === 0 ? 'connecting' : `reconnecting${old}`
}

// What happens

function tell(event) {
  if (event.type === 'resync') return
  const about = [
    event.resource ?? event.key ?? (event.lease > 0 ? `lease ${event.lease}` : ''),
    event.holder,
    event.cause && `(${event.cause})`,
  ]
  const item = element(
    'li',
    { data: { type: event.type } },
    element('time', {}, new Date(event.at).toLocaleTimeString([], { hour12: false })),
    element('span', { class: 'type' }, event.type),
    element('span', { class: 'about' }, about.filter(Boolean).join('  ')),
  )
  $('events').prepend(item)
  while ($('events').childElementCount > EVENTS) $('events').lastElementChild.remove()
  $('events-empty').hidden = true
}

/** Reads server-sent events from a fetch: an EventSource could not carry a key. */
async function follow() {
  const stop = new AbortController()
  let silent = setTimeout(() => stop.abort(), SILENCE)
  try {
    const answer = await ask(`/v1/watch?after=${revision}`, { accept: 'text/event-stream', signal: stop.signal })
    live = true
    heardAt = performance.now()
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
    let rest = ''
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      clearTimeout(silent)
      silent = setTimeout(() => stop.abort(), SILENCE)
      heardAt = performance.now()
      rest += value
      const blocks = rest.split('\n\n')
      rest = blocks.pop()
      let changed = false
      for (const block of blocks) {
        const data = block.split('\n').find(line => line.startsWith('data: '))
        if (data === undefined) continue
        const event = JSON.parse(data.slice(6))
        revision = Math.max(revision, event.revision)
        tell(event)
        changed = true
      }
      if (changed) soon()
    }
  } finally {
    clearTimeout(silent)
    stop.abort()
    live = false
    drawStatus()
  }
}

let planned = false
function soon() {
  if (planned) return
  planned = true
  setTimeout(() => {
    planned = false
    look().catch(() => {})
  }, TOGETHER)
}

async function run() {
  let pause = 500
  for (;;) {
    try {
      await look()
      pause = 500
      await follow()
    } catch {
      // What went wrong is shown by the age of what is on the page; it is tried again.
    }
    await new Promise(resolve => {
      const timer = setTimeout(resolve, pause)
      wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
    pause = Math.min(pause * 2, 10_000)
  }
}
let wake = () => {}

$('filter').addEventListener('input', ({ target }) => {
  filter = target.value.trim().toLowerCase()
  draw()
})
$('key-form').addEventListener('submit', event => {
  event.preventDefault()
  sessionStorage.setItem(KEY, $('key').value.trim())
  $('key').value = ''
  wake()
})
setInterval(tick, 250)
setInterval(() => {
  if (live && !document.hidden) look().catch(() => {})
}, REFRESH)
run()
