/** The filters above a table of resources or leases. They are in the address, and the server applies them. */
import type { VNode } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { route, setParams } from '../route.ts'

/** Ms after a key was pressed until the filter is applied: short, because an answer is expected at once. */
const DELAY = 30

interface FilterProps {
  readonly name: string
  readonly label: string
  readonly hint: string
}

function TextFilter({ name, label, hint }: FilterProps): VNode {
  const given = route.value.params.get(name) ?? ''
  const [text, setText] = useState(given)
  useEffect(() => setText(given), [given])
  useEffect(() => {
    if (text === given) return
    const timer = setTimeout(() => setParams({ [name]: text }), DELAY)
    return () => clearTimeout(timer)
  }, [text, given, name])
  return (
    <label class="filter">
      <span>{label}</span>
      <input
        id={`filter-${name}`}
        type="search"
        value={text}
        placeholder={hint}
        onInput={event => setText(event.currentTarget.value)}
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
