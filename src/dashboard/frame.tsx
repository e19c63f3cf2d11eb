/** The frame around every view: where to go, whether the dashboard is up to date, and for whom it acts. */
import type { ComponentChildren, VNode } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { visible } from './format.ts'
import { Notices, StateReader, Status } from './part/server-state.tsx'
import { go, href, route } from './route.ts'
import { account, changeKey, hasKey, keyWanted, useKey } from './server.ts'
import { nextTheme, themeChoice } from './theme.ts'

/** Views by their place in the address, their title, and the key that leads to each after `g`. */
export const VIEWS: readonly (readonly [view: string, title: string, key: string])[] = [
  ['now', 'Now', 'n'],
  ['resources', 'Resources', 'r'],
  ['leases', 'Leases', 'l'],
  ['services', 'Services', 's'],
  ['elections', 'Elections', 'e'],
  ['pools', 'Pools', 'p'],
  ['sessions', 'Sessions', 't'],
  ['claims', 'Claims', 'c'],
  ['events', 'Events', 'v'],
  ['policies', 'Policies', 'o'],
]

/** Views of one thing belong to the list that they are reached from. */
const PARENTS: Readonly<Record<string, string>> = { resource: 'resources', lease: 'leases' }

export function Frame({ children }: { readonly children: ComponentChildren }): VNode {
  const shown = PARENTS[route.value.view] ?? route.value.view
  // On a phone the views are one line that scrolls.
  useEffect(() => {
    const scroll = () => document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' })
    scroll()
    addEventListener('resize', scroll)
    return () => removeEventListener('resize', scroll)
  }, [shown])
  return (
    <>
      <a class="skip" href={`${location.hash}`} onClick={focusMain}>
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href="#/now" aria-label="Leasehold, now">
          <img src="/page.svg" alt="" width="22" height="22" />
          <span>Leasehold</span>
        </a>
        <Search />
        <Status />
        <Who />
        <button
          type="button"
          class="icon"
          onClick={nextTheme}
          title={`Colours: ${themeChoice.value}`}
          aria-label={`Colours: ${themeChoice.value}. Change`}
        >
          {{ system: '◐', light: '☀', dark: '☾' }[themeChoice.value]}
        </button>
      </header>
      <nav aria-label="Views">
        <ul>
          {VIEWS.map(([view, title, key]) => (
            <li key={view}>
              <a href={href(view)} title={`g ${key}`} {...(view === shown ? { 'aria-current': 'page' as const } : {})}>
                {title}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main id="main" tabIndex={-1}>
        <Notices />
        {children}
      </main>
      <footer>
        <span>Times are estimates; the token decides which holder is current.</span>
        <span>
          <a href="/openapi.json">API</a> <a href="/metrics">Metrics</a> <kbd>?</kbd> keys
        </span>
      </footer>
      <Keys />
      <StateReader />
    </>
  )
}

function focusMain(event: Event): void {
  event.preventDefault()
  document.getElementById('main')?.focus()
}

/** Goes to a resource by its name, or to the resources that contain the text. */
function Search(): VNode {
  const [text, setText] = useState('')
  return (
    <search class="search">
      <form
        onSubmit={event => {
          event.preventDefault()
          if (text.trim() !== '') go(href('resources', '', { text: text.trim() }))
        }}
      >
        <input
          id="search"
          type="search"
          value={text}
          onInput={event => setText(event.currentTarget.value)}
          placeholder="Find a name or holder   /"
          aria-label="Find a name or holder"
          autocomplete="off"
          spellcheck={false}
        />
      </form>
    </search>
  )
}

function Who(): VNode | null {
  const who = account.value
  if (who === undefined || !hasKey.value) return null
  return (
    <details class="who">
      <summary title="The key of this tab">{visible(who.name)}</summary>
      <div class="sheet">
        <h2>{visible(who.name)}</h2>
        <p>{who.operator === true ? 'The operator: everything is allowed.' : 'This key may:'}</p>
        <ul>
          {who.allow.map(({ verb, prefix }) => (
            <li key={`${verb} ${prefix}`}>
              <b>{verb}</b> <code>{prefix === '' ? 'everything' : visible(prefix)}</code>
            </li>
          ))}
        </ul>
        <button type="button" class="button plain" id="other-key" onClick={changeKey}>
          Use another key
        </button>
      </div>
    </details>
  )
}

/** Asks for a key. Nothing else is shown meanwhile. */
export function KeyForm(): VNode {
  const [text, setText] = useState('')
  const input = useRef<HTMLInputElement>(null)
  useEffect(() => input.current?.focus(), [])
  return (
    <main class="key-page" id="main">
      <form
        id="key-form"
        onSubmit={event => {
          event.preventDefault()
          if (text.trim() !== '') useKey(text.trim())
        }}
      >
        <h1>
          <img src="/page.svg" alt="" width="28" height="28" /> Leasehold
        </h1>
        <label for="key">This server requires a key</label>
        <input
          id="key"
          ref={input}
          type="password"
          value={text}
          onInput={event => setText(event.currentTarget.value)}
          autocomplete="off"
          spellcheck={false}
          required
          aria-describedby="key-note"
        />
        {keyWanted.value === '' ? null : (
          <p class="problem" role="alert" id="key-problem">
            {keyWanted.value}
          </p>
        )}
        <button type="submit" class="button main">
          Use key
        </button>
        <p id="key-note">The key stays in this tab, is sent in a header, and is forgotten when the tab is closed.</p>
        <pre>
          <code>leasehold key create --name me --allow 'read:,watch:'</code>
        </pre>
      </form>
    </main>
  )
}

/** The keys of the keyboard, and what each does. */
function Keys(): VNode {
  const help = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    let going = 0
    const pressed = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement
      if (event.metaKey || event.ctrlKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return
      if (document.querySelector('dialog[open]') !== null) return
      if (going > 0 && performance.now() - going < 1_500) {
        going = 0
        const found = VIEWS.find(([, , key]) => key === event.key)
        if (found !== undefined) go(href(found[0]))
      } else if (event.key === 'g') going = performance.now()
      else if (event.key === '/') {
        event.preventDefault()
        const filter = document.querySelector<HTMLInputElement>('#filter-text') ?? document.querySelector<HTMLInputElement>('#search')
        filter?.focus()
      } else if (event.key === '?') help.current?.showModal()
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [])
  return (
    <dialog ref={help} class="keys" aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl>
        {VIEWS.map(([view, title, key]) => (
          <div key={view}>
            <dt>
              <kbd>g</kbd> <kbd>{key}</kbd>
            </dt>
            <dd>{title}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>/</kbd>
          </dt>
          <dd>Find</dd>
        </div>
        <div>
          <dt>
            <kbd>↑</kbd> <kbd>↓</kbd> <kbd>Enter</kbd>
          </dt>
          <dd>Move in a table, open a row</dd>
        </div>
        <div>
          <dt>
            <kbd>Space</kbd>
          </dt>
          <dd>Pause the events</dd>
        </div>
      </dl>
      <button type="button" class="button plain" onClick={() => help.current?.close()}>
        Close
      </button>
    </dialog>
  )
}
