/**
 * The script of the dashboard. It writes data as text, never as markup. It sends requests only to the server that it came from, and a key in a header,
 * never in a URL.
 *
 * After an event, the page reads the resource again that the event names. When too many have changed, and because renewals cause no events, it reads
 * everything again, but only every few seconds: an open page must cost a busy server almost nothing.
 */
/** How many resources the page lists. */
const MAX_RESOURCES = 300
/** How many events the page lists. */
const MAX_EVENTS = 60
/** Ms after an event until the page reads again, so that the next events are handled together with it. */
const BATCH_DELAY = 200
/** Up to this many changed resources are read one by one. */
const MAX_SINGLE_READS = 5
/** Ms between two reads of everything: at least, */
const MIN_REFRESH_INTERVAL = 3_000
/** and at most. */
const REFRESH_INTERVAL = 5_000
/** Ms without data from the event stream until the page opens it again. */
const STREAM_TIMEOUT = 40_000
const KEY = 'leasehold-key'

const $ = id => document.getElementById(id)
const resources = new Map()
/** Entries of services, by key. */
const entries = new Map()
const agents = new Map()
/** Names of resources that have changed since they were read. */
const changed = new Set()
/** Whether to read everything: after a gap in the events, or when too many resources have changed. */
let refreshAll = true
/** When everything was read last, by `performance.now()`. */
let fetchedAt = 0
let lastEventAt = 0
let live = false
let revision = 0
let filter = ''
/** The filter as it was typedFilter, with capitals. */
let typedFilter = ''
/** Resources that match the filter and are not in the list, when the list is not complete. */
const foundByFilter = new Map()
/** The number of leases, when the list is not complete and the key may read it. */
let summary
let needsKey = false
let mayWatch = true
/** Whether there are more resources than the list shows. */
let more = false
/** The last request. Requests run one after the other, so that no answer overtakes another. */
let lastRequest = Promise.resolve()

/** Creates an element. Children that are strings become text, never markup. */
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

/** An error response of the server. */
class ResponseError extends Error {
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

async function request(path, { signal, accept = 'application/json', body } = {}) {
  const method = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
  const type = body === undefined ? {} : { 'content-type': 'application/json' }
  const response = await fetch(path, { headers: headers({ accept, ...type }), cache: 'no-store', ...method, ...(signal && { signal }) })
  if (response.status === 401) {
    needsKey = true
    $('key-form').hidden = false
    if (sessionStorage.getItem(KEY) !== null) {
      sessionStorage.removeItem(KEY)
      $('key-note').textContent = 'The server does not know this key, or it was revoked.'
    }
    drawKey()
    throw new ResponseError(401, 'a key is required')
  }
  needsKey = false
  $('key-form').hidden = true
  if (response.ok) return response
  const content = await response.json().catch(() => undefined)
  throw new ResponseError(response.status, content?.error?.message ?? `the server answered with status ${response.status}`)
}

/** Undefined if the key does not allow it, or if it does not exist. */
async function requestIfAllowed(path, body) {
  try {
    return await (await request(path, { body })).json()
  } catch (error) {
    if (error.status === 403 || error.status === 404) return undefined
    throw error
  }
}

// Reading the state

function inOrder(work) {
  const done = lastRequest.then(work)
  lastRequest = done.catch(() => {})
  return done
}

function refresh() {
  return inOrder(async () => {
    changed.clear()
    refreshAll = false
    const [held, registered] = await Promise.all([
      requestIfAllowed(`/v1/resources?limit=${MAX_RESOURCES}`),
      requestIfAllowed(`/v1/entries?prefix=services&limit=${MAX_RESOURCES * 3}`),
    ])
    fetchedAt = performance.now()
    revision = Math.max(revision, held?.revision ?? 0, registered?.revision ?? 0)
    resources.clear()
    for (const resource of held?.resources ?? []) resources.set(resource.resource, { ...resource, at: fetchedAt })
    more = held?.more === true
    summary = more ? (await requestIfAllowed('/v1/read', { query: { kind: 'summary' } }))?.value : undefined
    await findFiltered()
    await readTtls()
    entries.clear()
    for (const entry of registered?.entries ?? []) entries.set(entry.key, entry)
    $('resources-denied').hidden = held !== undefined
    $('agents-denied').hidden = registered !== undefined
    $('resources-more').hidden = !more
    $('resources-more').textContent = `Only the first ${MAX_RESOURCES} resources are shown. Use the filter to find others.`
    $('agents-more').hidden = registered?.more !== true
    draw()
  })
}

/** Reads resources that match the filter and are not in the list: the filter as a whole name, and as a prefix up to a slash. */
async function findFiltered() {
  const text = typedFilter
  foundByFilter.clear()
  if (!more || text === '') return
  const path = text.split('/').map(encodeURIComponent).join('/')
  const [one, under] = await Promise.all([
    requestIfValid(`/v1/resources/${path}`),
    requestIfValid(`/v1/resources?limit=${MAX_RESOURCES}&prefix=${encodeURIComponent(text)}`),
  ])
  if (text !== typedFilter) return
  const at = performance.now()
  for (const resource of [...(under?.resources ?? []), ...(one === undefined ? [] : [one])])
    if (resource.grants.length + resource.queue.length > 0) foundByFilter.set(resource.resource, { ...resource, at })
}

/** Undefined also if the path is invalid: the filter may not be a complete name yet. */
async function requestIfValid(path) {
  try {
    return await requestIfAllowed(path)
  } catch (error) {
    if (error.status === 400) return undefined
    throw error
  }
}

/** The ttl of each lease, which its progress bar needs. */
const ttls = new Map()

async function readTtls() {
  const shown = [...resources.values(), ...foundByFilter.values()].flatMap(({ grants }) => grants.map(({ lease }) => lease))
  const unknown = [...new Set(shown)].filter(lease => !ttls.has(lease))
  if (unknown.length === 0) return
  if (ttls.size > MAX_RESOURCES * 8) ttls.clear()
  const known =
    unknown.length <= MAX_SINGLE_READS
      ? await Promise.all(unknown.map(lease => requestIfAllowed(`/v1/leases/${lease}`)))
      : (await requestIfAllowed(`/v1/leases?limit=${MAX_RESOURCES * 2}`))?.leases
  for (const lease of unknown) ttls.set(lease, undefined) // read only once: a lease without an answer gets no bar
  for (const lease of known ?? []) if (lease !== undefined) ttls.set(lease.lease, lease.ttl)
}

/** Reads only the named resources. */
function refreshResources(names) {
  return inOrder(async () => {
    const wanted = names.filter(name => resources.has(name) || (!more && resources.size < MAX_RESOURCES))
    const answers = await Promise.all(
      wanted.map(name => requestIfAllowed(`/v1/resources/${name.split('/').map(encodeURIComponent).join('/')}`)),
    )
    for (const [i, name] of wanted.entries()) {
      const resource = answers[i]
      if (resource === undefined || resource.grants.length + resource.queue.length === 0) resources.delete(name)
      else resources.set(name, { ...resource, at: performance.now() })
    }
    await readTtls()
    draw()
  })
}

let refreshPlanned = false
/** Reads what has changed after a short delay, together with further changes until then. */
function refreshSoon(delay = BATCH_DELAY) {
  if (refreshPlanned) return
  refreshPlanned = true
  setTimeout(() => {
    refreshPlanned = false
    if (document.hidden) return // the page refreshes when it becomes visible
    const early = fetchedAt + MIN_REFRESH_INTERVAL - performance.now()
    if (refreshAll && early > 0) return refreshSoon(early)
    const names = [...changed]
    changed.clear()
    const done = refreshAll ? refresh() : refreshResources(names)
    done.catch(showError)
  }, delay)
}

function applyEvent(event) {
  const { key, type, value, holder, resource } = event
  revision = Math.max(revision, event.revision)
  if (resource !== undefined) changed.add(resource)
  refreshAll ||= changed.size > MAX_SINGLE_READS || type === 'resync' || type === 'generation' || type === 'policy'
  if (key === undefined || !key.startsWith('services/')) return
  const known = entries.get(key)
  if (type === 'put') entries.set(key, { ...known, key, value, holder: holder ?? known?.holder, status: 'live' })
  else if (type === 'deleted') entries.delete(key)
  else if (known !== undefined && type === 'suspected') known.status = 'suspect'
  else if (known !== undefined && type === 'recovered') known.status = 'live'
  else if (known !== undefined && type === 'suppressed') known.suppressed = true
}

/** `services/SERVICE/INSTANCE` is a registration, `…/state` its own status, `…/check` the result of its health check. */
function readAgents() {
  agents.clear()
  for (const { key, value, status, holder, suppressed } of entries.values()) {
    const [, service, instance, part] = key.split('/')
    if (instance === undefined) continue
    const name = `${service}/${instance}`
    const agent = agents.get(name) ?? {
      service,
      instance,
      holder,
      registration: {},
      state: {},
      check: {},
      suspect: false,
      suppressed: false,
    }
    if (part === undefined) Object.assign(agent, { registration: parsed(value), holder, suppressed: suppressed === true })
    else if (part === 'state' || part === 'check') agent[part] = parsed(value)
    agent.suspect ||= status === 'suspect'
    agents.set(name, agent)
  }
}

/** The same order as in the server: the instance's own status, then failures, then suspicions. */
function statusOf({ registration, state, check, suspect, suppressed }) {
  const own = String(state.status ?? 'passing')
  if (own === 'maintenance' || own === 'draining') return own
  if (own === 'critical' || check.status === 'critical') return 'critical'
  if (registration.check !== undefined && check.status === undefined) return 'unknown'
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
  readAgents()
  drawKey()
  drawResources()
  drawAgents()
  let waiting = 0
  let held = 0
  for (const { grants, queue } of resources.values()) {
    held += grants.length
    waiting += queue.length
  }
  // When the list is not complete, use the server's counts of leases that are held and that wait.
  const counted = more && summary?.leases !== undefined
  $('count-held').textContent = counted ? String(summary.leases - (summary.waiting ?? 0)) : more ? `${held}+` : String(held)
  $('count-waiting').textContent = counted ? String(summary.waiting ?? 0) : more ? `${waiting}+` : String(waiting)
  $('count-agents').textContent = String(agents.size)
  $('count-revision').textContent = String(revision)
  $('count-revision').title = String(revision)
  tick()
}

/** Reuses rows by key, so that unchanged rows do not flicker and new ones can be highlighted. */
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

/** Everything in an item except the values that change with time. */
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
  const wanted = [...new Map([...resources, ...foundByFilter])]
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

/** Explains an empty table: it does not mean that nothing is held. */
function drawEmpty() {
  const text = more ? 'No resource in this list matches, but the list is incomplete. Type a whole name.' : 'No held resource matches.'
  $('resources-unmatched').textContent = text
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
    .filter(([name, { registration }]) => matches(name, addressOf(registration), ...list(registration.capabilities)))
    .sort(([a], [b]) => (a < b ? -1 : 1))
  drawRows($('agents'), wanted, agent => {
    const { service, instance, registration } = agent
    const status = statusOf(agent)
    return element(
      'tr',
      {},
      element('td', { class: 'name' }, service),
      element('td', {}, instance),
      element('td', {}, link(addressOf(registration))),
      element('td', {}, ...list(registration.capabilities).map(can => element('span', { class: 'tag' }, can))),
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

/** Links only http and https URLs. */
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
      const ttl = ttls.get(grant.lease)
      line.lastElementChild.hidden = ttl === undefined
      line.lastElementChild.value = left / Math.max(1, ttl ?? 1)
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
  const age = fetchedAt === 0 ? undefined : performance.now() - Math.max(fetchedAt, live ? lastEventAt : 0)
  const old = age === undefined ? '' : `, as of ${inWords(age)} ago`
  const [state, text] = live
    ? ['live', 'live']
    : needsKey
      ? ['connecting', 'a key is required']
      : fetchedAt === 0
        ? ['connecting', 'connecting']
        : mayWatch
          ? ['lost', `reconnecting${old}`]
          : ['looking', `refreshed every ${REFRESH_INTERVAL / 1_000} s${old}`]
  $('status').dataset.state = state
  $('status-text').textContent = text
}

/** A link cannot carry a key, so the link to /metrics is hidden when a key is in use. */
function drawKey() {
  const inUse = sessionStorage.getItem(KEY) !== null
  $('metrics').hidden = inUse || needsKey
  $('key-scope').hidden = !inUse
  for (const text of document.querySelectorAll('.with-key')) text.hidden = !inUse
}

/** Shows an error response, or removes the message. A server that does not answer is shown by the age of the data instead. */
function showError(error) {
  const text = error instanceof ResponseError && error.status !== 401 ? error.message : ''
  $('error').hidden = text === ''
  $('error').textContent = text
}

// Events

function showEvent(event) {
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
  while ($('events').childElementCount > MAX_EVENTS) $('events').lastElementChild.remove()
  $('events-empty').hidden = true
}

/** Reads server-sent events with fetch, because an EventSource cannot send a key. */
async function followEvents() {
  const stop = new AbortController()
  let timeout = setTimeout(() => stop.abort(), STREAM_TIMEOUT)
  try {
    const response = await request(`/v1/watch?after=${revision}`, { accept: 'text/event-stream', signal: stop.signal }).catch(error => {
      if (error.status !== 403) throw error
      mayWatch = false
      $('events-denied').hidden = false
      $('events-empty').hidden = true
    })
    if (response === undefined) return
    live = true
    lastEventAt = performance.now()
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
    let rest = ''
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      clearTimeout(timeout)
      timeout = setTimeout(() => stop.abort(), STREAM_TIMEOUT)
      lastEventAt = performance.now()
      rest += value
      const blocks = rest.split('\n\n')
      rest = blocks.pop()
      let received = false
      for (const block of blocks) {
        const data = block.split('\n').find(line => line.startsWith('data: '))
        if (data === undefined) continue
        const event = JSON.parse(data.slice(6))
        applyEvent(event)
        showEvent(event)
        received = true
      }
      if (received) refreshSoon()
    }
  } finally {
    clearTimeout(timeout)
    stop.abort()
    live = false
    drawStatus()
  }
}

async function run() {
  let pause = 500
  for (;;) {
    try {
      await refresh()
      showError()
      pause = 500
      if (mayWatch) await followEvents()
    } catch (error) {
      showError(error)
    }
    if (!mayWatch) pause = REFRESH_INTERVAL
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
  typedFilter = target.value.trim()
  filter = typedFilter.toLowerCase()
  draw()
  if (more) inOrder(findFiltered).then(draw).catch(showError)
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
function refreshIfVisible() {
  if (live && !document.hidden) refresh().then(() => showError(), showError)
}
setInterval(tick, 250)
setInterval(refreshIfVisible, REFRESH_INTERVAL)
document.addEventListener('visibilitychange', refreshIfVisible)
run()
