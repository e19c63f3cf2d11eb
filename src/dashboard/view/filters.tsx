/** The filters above a table of resources or leases. They are in the address, and the server applies them. */
import type { VNode } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { paced } from '../pace.ts'
import { route, setParams } from '../route.ts'

/** Ms between two filters while a reader types. The first key is applied at once: an answer is expected at once. */
const PACE = 80

interface FilterProps {
  readonly name: string
  readonly label: string
  readonly hint: string
}

function TextFilter({ name, label, hint }: FilterProps): VNode {
  const given = route.value.params.get(name) ?? ''
  const [text, setText] = useState(given)
  const latest = useRef(text)
  const applied = useRef(text)
  const apply = useMemo(
    () =>
      paced(PACE, () => {
        applied.current = latest.current
        setParams({ [name]: latest.current })
      }),
    [name],
  )
  useEffect(() => apply.end, [apply])
  useEffect(() => {
    // What was typed stays, unless something else has changed the address, such as a link. Read it again: an effect may run after the next key was applied.
    const now = route.peek().params.get(name) ?? ''
    if (now === applied.current) return
    applied.current = now
    latest.current = now
    setText(now)
  }, [given, name])
  const typed = (value: string) => {
    latest.current = value
    setText(value)
    apply.ask()
  }
  return (
    <label class="filter">
      <span>{label}</span>
      <input
        id={`filter-${name}`}
        type="search"
        value={text}
        placeholder={hint}
        onInput={event => typed(event.currentTarget.value)}
        autocomplete="off"
        spellcheck={false}
        maxLength={512}
      />
    </label>
  )
}

interface FiltersProps {
  readonly states: readonly string[]
  readonly label: boolean
}

export function Filters({ states, label }: FiltersProps): VNode {
  const state = route.value.params.get('state') ?? ''
  return (
    <search class="filters" aria-label="Filters">
      <TextFilter name="text" label="Contains" hint="name or holder" />
      <TextFilter name="prefix" label="Prefix" hint="jobs/nightly" />
      <TextFilter name="holder" label="Holder" hint="exact name" />
      {label ? <TextFilter name="label" label="Label" hint="kind=claim" /> : null}
      <label class="filter">
        <span>State</span>
        <select id="filter-state" value={state} onChange={event => setParams({ state: event.currentTarget.value })}>
          <option value="">any</option>
          {states.map(name => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
    </search>
  )
}

/** The filters of the address as the query of a request. */
export function filterQuery(names: readonly string[], fixed: Readonly<Record<string, string>> = {}): string {
  const { params } = route.value
  const query = new URLSearchParams(fixed)
  for (const name of names) {
    const value = (params.get(name) ?? '').trim()
    if (value !== '') query.set(name, value)
  }
  return query.toString()
}
