/**
 * A small live page. What it is told it writes as text, never as markup; it asks nobody but the server it came from, and a key goes out in a header,
 * never in an address.
 *
 * Events say what to look at again, one by one; when too much has changed for that, and because renewals make no events, all of it is looked at
 * again, and never more often than every few seconds: an open page must cost a busy server next to nothing.
 */
const LIST = 300
const EVENTS = 60
const TOGETHER = 200
/** So many that changed are looked at one by one. */
const FEW = 5
/** No sooner than this after the last time is everything looked at again, */
const SELDOM = 3_000
/** and no later. */
const REFRESH = 5_000
const SILENCE = 40_000
const KEY = 'leasehold-key'

const $ = id => document.getElementById(id)
const resources = new Map()
/** Of services, by key. */
const entries = new Map()
const agents = new Map()
/** Names of resources that events have told of since they were looked at. */
const changed = new Set()
/** More than that: a gap in what was told, or too many of them. */
let everything = true
/** When everything was looked at last, on this page's own clock. */
let fetchedAt = 0
let heardAt = 0
let live = false
let revision = 0
let filter = ''
/** As it was typed: names have capitals. */
let typed = ''
/** What the server has under the filter, where not everything is shown. */
const found = new Map()
/** How many leases there are, where not everything is shown and the key may know. */
let summary
let needsKey = false
let mayWatch = true
/** There are more resources than are shown. */
let more = false
/** What was asked of the server last, so that no answer overtakes another. */
let asked = Promise.resolve()

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

/** The server said no, and why. */
class Refusal extends Error {
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

async function ask(path, { signal, accept = 'application/json', body } = {}) {
  const sent = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
  const type = body === undefined ? {} : { 'content-type': 'application/json' }
  const answer = await fetch(path, { headers: headers({ accept, ...type }), cache: 'no-store', ...sent, ...(signal && { signal }) })
  if (answer.status === 401) {
    needsKey = true
    $('key-form').hidden = false
    if (sessionStorage.getItem(KEY) !== null) {
      sessionStorage.removeItem(KEY)
      $('key-note').textContent = 'That key is not known here, or was revoked.'
    }
    drawKey()
    throw new Refusal(401, 'a key is needed')
  }
  needsKey = false
  $('key-form').hidden = true
  if (answer.ok) return answer
  const said = await answer.json().catch(() => undefined)
  throw new Refusal(answer.status, said?.error?.message ?? `the server answered ${answer.status}`)
}

/** Undefined: not for this key, or not there. */
async function askIfAllowed(path, body) {
  try {
    return await (await ask(path, { body })).json()
  } catch (error) {
    if (error.status === 403 || error.status === 404) return undefined
    throw error
  }
}

// What is there

function oneByOne(work) {
  const done = asked.then(work)
  asked = done.catch(() => {})
  return done
}

function look() {
  return oneByOne(async () => {
    changed.clear()
    everything = false
    const [held, registered] = await Promise.all([
      askIfAllowed(`/v1/resources?limit=${LIST}`),
      askIfAllowed(`/v1/entries?prefix=services&limit=${LIST * 3}`),
    ])
    fetchedAt = performance.now()
    revision = Math.max(revision, held?.revision ?? 0, registered?.revision ?? 0)
    resources.clear()
    for (const resource of held?.resources ?? []) resources.set(resource.resource, { ...resource, at: fetchedAt })
    more = held?.more === true
    summary = more ? (await askIfAllowed('/v1/read', { query: { kind: 'summary' } }))?.value : undefined
    await findFiltered()
    await learnTerms()
    entries.clear()
    for (const entry of registered?.entries ?? []) entries.set(entry.key, entry)
    $('resources-denied').hidden = held !== undefined
    $('agents-denied').hidden = registered !== undefined
    $('resources-more').hidden = !more
    $('resources-more').textContent = `${LIST} are shown, and there are more.`
    $('agents-more').hidden = registered?.more !== true
    draw()
  })
}

/** What the filter may mean and is not among what is shown: a whole name, or the beginning of names up to a slash. */
async function findFiltered() {
  const text = typed
  found.clear()
  if (!more || text === '') return
  const path = text.split('/').map(encodeURIComponent).join('/')
  const [one, under] = await Promise.all([
    askIfValid(`/v1/resources/${path}`),
    askIfValid(`/v1/resources?limit=${LIST}&prefix=${encodeURIComponent(text)}`),
  ])
  if (text !== typed) return
  const at = performance.now()
  for (const resource of [...(under?.resources ?? []), ...(one === undefined ? [] : [one])])
    if (resource.grants.length + resource.queue.length > 0) found.set(resource.resource, { ...resource, at })
}

/** What is typed need not be a name yet. */
async function askIfValid(path) {
  try {
    return await askIfAllowed(path)
  } catch (error) {
    if (error.status === 400) return undefined
    throw error
  }
}

/** How long a lease lasts after a renewal: only with that does a bar say how much of it is left. */
const terms = new Map()

async function learnTerms() {
  const shown = [...resources.values(), ...found.values()].flatMap(({ grants }) => grants.map(({ lease }) => lease))
  const unknown = [...new Set(shown)].filter(lease => !terms.has(lease))
  if (unknown.length === 0) return
  if (terms.size > LIST * 8) terms.clear()
  const known =
    unknown.length <= FEW
      ? await Promise.all(unknown.map(lease => askIfAllowed(`/v1/leases/${lease}`)))
      : (await askIfAllowed(`/v1/leases?limit=${LIST * 2}`))?.leases
  for (const lease of unknown) terms.set(lease, undefined) // asked once: what is not told stays without a bar
  for (const found of known ?? []) if (found !== undefined) terms.set(found.lease, found.ttl)
}

/** Only those that changed. */
function lookAt(names) {
  return oneByOne(async () => {
    const wanted = names.filter(name => resources.has(name) || (!more && resources.size < LIST))
    const answers = await Promise.all(
      wanted.map(name => askIfAllowed(`/v1/resources/${name.split('/').map(encodeURIComponent).join('/')}`)),
    )
    for (const [i, name] of wanted.entries()) {
      const resource = answers[i]
      if (resource === undefined || resource.grants.length + resource.queue.length === 0) resources.delete(name)
      else resources.set(name, { ...resource, at: performance.now() })
    }
    await learnTerms()
    draw()
  })
}

let planned = false
/** Soon, and together with what changes until then. */
function lookSoon(pause = TOGETHER) {
  if (planned) return
  planned = true
  setTimeout(() => {
    planned = false
    if (document.hidden) return // it is looked at again when somebody looks
    const early = fetchedAt + SELDOM - performance.now()
    if (everything && early > 0) return lookSoon(early)
    const names = [...changed]
    changed.clear()
    const done = everything ? look() : lookAt(names)
    done.catch(trouble)
  }, pause)
}

function hear(event) {
  const { key, type, value, holder, resource } = event
  revision = Math.max(revision, event.revision)
  if (resource !== undefined) changed.add(resource)
  everything ||= changed.size > FEW || type === 'resync' || type === 'generation' || type === 'policy'
  if (key === undefined || !key.startsWith('services/')) return
  const known = entries.get(key)
  if (type === 'put') entries.set(key, { ...known, key, value, holder: holder ?? known?.holder, status: 'live' })
  else if (type === 'deleted') entries.delete(key)
  else if (known !== undefined && type === 'suspected') known.status = 'suspect'
  else if (known !== undefined && type === 'recovered') known.status = 'live'
  else if (known !== undefined && type === 'suppressed') known.suppressed = true
}

/** `services/SERVICE/INSTANCE` is a registration; `…/state` is what it says of itself, `…/check` what a probe found. */
function takeAgents() {
  agents.clear()
  for (const { key, value, status, holder, suppressed } of entries.values()) {
    const [, service, instance, part] = key.split('/')
    if (instance === undefined) continue
    const name = `${service}/${instance}`
    const agent = agents.get(name) ?? { service, instance, holder, said: {}, state: {}, check: {}, suspect: false, suppressed: false }
    if (part === undefined) Object.assign(agent, { said: parsed(value), holder, suppressed: suppressed === true })
    else if (part === 'state' || part === 'check') agent[part] = parsed(value)
    agent.suspect ||= status === 'suspect'
    agents.set(name, agent)
  }
}

/** As the server has it: its own will first, then what is known to be wrong, then what is feared. */
function statusOf({ said, state, check, suspect, suppressed }) {
  const own = String(state.status ?? 'passing')
  if (own === 'maintenance' || own === 'draining') return own
  if (own === 'critical' || check.status === 'critical') return 'critical'
  if (said.check !== undefined && check.status === undefined) return 'unknown'
  if (suspect) return 'suspect'
  if (suppressed) return 'suppressed'
  return check.status === 'warning' ? 'warning' : own
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
  takeAgents()
  drawKey()
  drawResources()
  drawAgents()
  let waiting = 0
  let held = 0
  for (const { grants, queue } of resources.values()) {
    held += grants.length
    waiting += queue.length
  }
  // Where not everything is shown, the server counts: leases that are held, and leases that wait.
  const counted = more && summary?.leases !== undefined
  $('count-held').textContent = counted ? String(summary.leases - (summary.waiting ?? 0)) : more ? `${held}+` : String(held)
  $('count-waiting').textContent = counted ? String(summary.waiting ?? 0) : more ? `${waiting}+` : String(waiting)
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
  $(`${table.id}-empty`).hidden = !table.hidden || !$(`${table.id}-denied`).hidden
}

/** Everything but the time that passes. */
function shapeOf(item) {
  return JSON.stringify(item, (name, value) => (name === 'remaining' || name === 'revision' || name === 'at' ? undefined : value))
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
  const wanted = [...new Map([...resources, ...found])]
    .filter(([name, { grants, queue }]) => matches(name, ...[...grants, ...queue].map(({ holder }) => holder)))
    .sort(([a], [b]) => (a < b ? -1 : 1))
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
  drawEmpty()
}

/** Nothing in the table is not nothing at all. */
function drawEmpty() {
  const words = more ? 'Nothing that is shown here matches, and there is more: write a whole name.' : 'Nothing that is held matches.'
  $('resources-unmatched').textContent = words
  const unmatched = filter !== '' && $('resources').hidden && $('resources-denied').hidden && (more || resources.size > 0)
  $('resources-unmatched').hidden = !unmatched
  if (unmatched) $('resources-empty').hidden = true
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
  const wanted = [...agents]
    .filter(([name, { said }]) => matches(name, addressOf(said), ...list(said.capabilities)))
    .sort(([a], [b]) => (a < b ? -1 : 1))
  drawRows($('agents'), wanted, agent => {
    const { service, instance, said } = agent
    const status = statusOf(agent)
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

function tick() {
  const now = performance.now()
  for (const row of $('resources').tBodies[0].rows)
    for (const [i, line] of [...row.querySelectorAll('.left')].entries()) {
      const grant = row.item.grants[i]
      if (grant === undefined) continue
      const left = Math.max(0, grant.remaining - (now - row.item.at))
      line.firstElementChild.textContent = inWords(left)
      const term = terms.get(grant.lease)
      line.lastElementChild.hidden = term === undefined
      line.lastElementChild.value = left / Math.max(1, term ?? 1)
      line.classList.toggle('soon', left < 5_000)
    }
  drawStatus()
}

function inWords(ms) {
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`
  if (ms < 120_000) return `${Math.round(ms / 1_000)} s`
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${(ms / 3_600_000).toFixed(1)} h`
}

function drawStatus() {
  const age = fetchedAt === 0 ? undefined : performance.now() - Math.max(fetchedAt, live ? heardAt : 0)
  const old = age === undefined ? '' : `, as of ${inWords(age)} ago`
  const [state, text] = live
    ? ['live', 'live']
    : needsKey
      ? ['connecting', 'a key is needed']
      : fetchedAt === 0
        ? ['connecting', 'connecting']
        : mayWatch
          ? ['lost', `reconnecting${old}`]
          : ['looking', `looked at every ${REFRESH / 1_000} s${old}`]
  $('status').dataset.state = state
  $('status-text').textContent = text
}

/** A link could not carry a key: what needs one is left out where one is in use. */
function drawKey() {
  const inUse = sessionStorage.getItem(KEY) !== null
  $('metrics').hidden = inUse || needsKey
  $('key-scope').hidden = !inUse
  for (const words of document.querySelectorAll('.with-key')) words.hidden = !inUse
}

/** What went wrong, until something goes right. That nobody answers is shown by the age of what is on the page. */
function trouble(error) {
  const words = error instanceof Refusal && error.status !== 401 ? error.message : ''
  $('trouble').hidden = words === ''
  $('trouble').textContent = words
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
    const answer = await ask(`/v1/watch?after=${revision}`, { accept: 'text/event-stream', signal: stop.signal }).catch(error => {
      if (error.status !== 403) throw error
      mayWatch = false
      $('events-denied').hidden = false
      $('events-empty').hidden = true
    })
    if (answer === undefined) return
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
      let heard = false
      for (const block of blocks) {
        const data = block.split('\n').find(line => line.startsWith('data: '))
        if (data === undefined) continue
        const event = JSON.parse(data.slice(6))
        hear(event)
        tell(event)
        heard = true
      }
      if (heard) lookSoon()
    }
  } finally {
    clearTimeout(silent)
    stop.abort()
    live = false
    drawStatus()
  }
}

async function run() {
  let pause = 500
  for (;;) {
    try {
      await look()
      trouble()
      pause = 500
      if (mayWatch) await follow()
    } catch (error) {
      trouble(error)
    }
    if (!mayWatch) pause = REFRESH
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
  typed = target.value.trim()
  filter = typed.toLowerCase()
  draw()
  if (more) oneByOne(findFiltered).then(draw).catch(trouble)
})
$('key-form').addEventListener('submit', event => {
  event.preventDefault()
  sessionStorage.setItem(KEY, $('key').value.trim())
  $('key').value = ''
  mayWatch = true
  $('events-denied').hidden = true
  wake()
})
$('other-key').addEventListener('click', () => {
  sessionStorage.removeItem(KEY)
  location.reload()
})
function lookAgain() {
  if (live && !document.hidden) look().then(() => trouble(), trouble)
}
setInterval(tick, 250)
setInterval(lookAgain, REFRESH)
document.addEventListener('visibilitychange', lookAgain)
run()
