/** The small parts that every view is made of. Texts from the server are always children of an element, never markup. */
import type { ComponentChildren, VNode } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { everyStep, second, serverNow } from '../clock.ts'
import { calmDuration, duration, exactTime, hueOf, shortNumber, visible } from '../format.ts'
import { href } from '../route.ts'

/** A token, revision or lease id: short, with the exact value in its title, and in its place after a click or a tap. */
export function Exact({ value, what }: { readonly value: number; readonly what: string }): VNode {
  const [whole, setWhole] = useState(false)
  return (
    <button type="button" class="exact" tabIndex={-1} title={`${what} ${value}`} onClick={() => setWhole(!whole)}>
      {whole ? value : shortNumber(value)}
    </button>
  )
}

/** Shows how long ago something happened, with the exact time in its title, and in its place after a click or a tap. */
export function Ago({ at, bare = false }: { readonly at: number; readonly bare?: boolean }): VNode {
  second.value // draw again every second
  const [whole, setWhole] = useState(false)
  const exact = exactTime(at)
  return (
    <button type="button" class="ago" tabIndex={-1} title={exact} onClick={() => setWhole(!whole)}>
      <time dateTime={isoOf(at)}>{whole ? exact : `${calmDuration(serverNow() - at)}${bare ? '' : ' ago'}`}</time>
    </button>
  )
}

function isoOf(at: number): string {
  const date = new Date(at)
  return Number.isNaN(date.getTime()) ? '' : date.toISOString()
}

/** A fixed length of time, with its milliseconds in its title. */
export function Length({ ms }: { readonly ms: number }): VNode {
  return <span title={`${Math.round(ms)} ms`}>{duration(ms)}</span>
}

interface LeftProps {
  /** Ms left when it was received. */
  readonly remaining: number
  /** When it was received, by `performance.now()`. */
  readonly at: number
  readonly ttl?: number | undefined
}

/** The time that a lease has left, with a bar that runs down. It moves by itself: the component is not drawn again. */
export function Left({ remaining, at, ttl }: LeftProps): VNode {
  const text = useRef<HTMLElement>(null)
  const bar = useRef<HTMLElement>(null)
  const drawn = useRef('')
  useEffect(
    () =>
      everyStep(now => {
        const left = Math.max(0, remaining - (now - at))
        if (text.current !== null) {
          const shown = duration(left)
          if (text.current.textContent !== shown) text.current.textContent = shown
        }
        if (bar.current === null || ttl === undefined || ttl <= 0) return
        const share = Math.min(1, left / ttl).toFixed(3)
        // A long bar moves by less than a pixel in a step: leave it alone.
        if (share === drawn.current) return
        drawn.current = share
        bar.current.style.transform = `scaleX(${share})`
        bar.current.dataset.low = String(Number(share) < 0.25)
      }),
    [remaining, at, ttl],
  )
  return (
    <span class="left" title={`about ${Math.round(remaining)} ms when it was read${ttl === undefined ? '' : `, of a ttl of ${ttl} ms`}`}>
      <span class="left-text" ref={text} />
      {ttl === undefined || ttl <= 0 ? null : (
        <span class="bar" aria-hidden="true">
          <span ref={bar} />
        </span>
      )}
    </span>
  )
}

/** Shows how long a lease may still be held at most, renewals or not. The cap counts from the grant. */
export function CapLeft({ since, maxLife }: { readonly since: number; readonly maxLife: number }): VNode {
  second.value // draw again every second
  const left = since + maxLife - serverNow()
  return (
    <span title={`at most ${duration(maxLife)} in all, until ${exactTime(since + maxLife)}`}>
      {left > 0 ? `${calmDuration(left)} at most` : 'the cap is reached'}
    </span>
  )
}

/** Rules of policies that are lengths of time in ms. */
const TIMED_RULES = /^(ttlMin|ttlMax|lockDelay|grace|maxLife|maxHold|aging|flapHalfLife|preserveMost|shareHalfLife|minHold|preemptNotice)$/

export function RuleValue({ rule, value }: { readonly rule: string; readonly value: unknown }): VNode {
  return TIMED_RULES.test(rule) && typeof value === 'number' ? <Length ms={value} /> : <span>{String(value)}</span>
}

export function Tag({ kind, children }: { readonly kind: string; readonly children?: ComponentChildren }): VNode {
  return (
    <span class="tag" data-kind={kind}>
      {children ?? kind}
    </span>
  )
}

/** A holder, with its colour. It links to its leases. */
export function Holder({ name, link = true }: { readonly name: string; readonly link?: boolean }): VNode {
  const shown = visible(name)
  return (
    <span class="holder" title={shown}>
      <i class={`dot hue-${hueOf(name)}`} aria-hidden="true" />
      {link ? <HolderLink name={name} /> : <bdi>{shown}</bdi>}
    </span>
  )
}

/** A holder without its colour, where another name on the line has one. */
export function HolderLink({ name }: { readonly name: string }): VNode {
  return (
    <a href={href('leases', '', { holder: name })}>
      <bdi>{visible(name)}</bdi>
    </a>
  )
}

/** Labels that a line shows. The page of the lease has all of them. */
const MAX_LABELS = 4

/** The labels of a lease in one line: its purpose first, then `by alice, deploy #4711`. The tools of agents label their own leases for themselves, with a kind. */
export function Labels({ labels }: { readonly labels: readonly (readonly [string, string])[] }): VNode | null {
  const shown = labels.filter(([, value]) => value !== '')
  const purpose = shown.filter(([key]) => key === 'purpose').map(([, value]) => visible(value))
  const isOfTools = shown.some(([key]) => key === 'kind')
  const others = (isOfTools ? [] : shown.filter(([key]) => key !== 'purpose')).map(([key, value]) => `${visible(key)} ${visible(value)}`)
  const text = [...purpose, ...others.slice(0, MAX_LABELS)].join(', ')
  if (text === '') return null
  return (
    <span class="purpose" title={[...purpose, ...others].join(', ')}>
      <bdi>{text}</bdi>
    </span>
  )
}

export function ResourceName({ name }: { readonly name: string }): VNode {
  const shown = visible(name)
  return (
    <a class="resource" href={href('resource', name)} title={shown}>
      <bdi>{shown}</bdi>
    </a>
  )
}

export function LeaseLink({ lease }: { readonly lease: number }): VNode {
  return (
    <a href={href('lease', String(lease))} title={`lease ${lease}`}>
      {shortNumber(lease)}
    </a>
  )
}

/** A text of others, with hidden characters made visible. */
export function Text({ children }: { readonly children: string }): VNode {
  return <bdi>{visible(children)}</bdi>
}

interface CardProps {
  readonly title: string
  /** Beside the title. */
  readonly aside?: ComponentChildren
  readonly children: ComponentChildren
  readonly class?: string
}

export function Card({ title, aside, children, class: name = '' }: CardProps): VNode {
  const id = `card-${title.toLowerCase().replaceAll(/\W+/g, '-')}`
  return (
    <section class={`card ${name}`} aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {aside === undefined ? null : <div class="aside">{aside}</div>}
      </header>
      {children}
    </section>
  )
}

/** Shows what to do about an empty view: the lines that fill it. */
export function Empty({ children, lines = [] }: { readonly children: ComponentChildren; readonly lines?: readonly string[] }): VNode {
  return (
    <div class="empty">
      <p>{children}</p>
      {lines.length === 0 ? null : (
        <pre>
          <code>{lines.join('\n')}</code>
        </pre>
      )}
    </div>
  )
}

/** Why a view has nothing to show: it is still being read, or it cannot be. */
export function Waiting({ error }: { readonly error: string | undefined }): VNode {
  return error === undefined ? (
    <p class="empty">Reading…</p>
  ) : (
    <p class="empty problem" role="status">
      {error}
    </p>
  )
}

interface ButtonProps {
  readonly onClick: () => void
  readonly children: ComponentChildren
  readonly kind?: 'plain' | 'danger' | 'main'
  readonly title?: string
  readonly disabled?: boolean
}

export function Button({ onClick, children, kind = 'plain', title, disabled = false }: ButtonProps): VNode {
  return (
    <button type="button" class={`button ${kind}`} onClick={onClick} disabled={disabled} title={title ?? ''}>
      {children}
    </button>
  )
}

/** One row of a list of facts. */
export function Fact({ name, children }: { readonly name: ComponentChildren; readonly children: ComponentChildren }): VNode {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

/** Labels as rows of a list of facts. */
export function LabelFacts({ labels }: { readonly labels: Readonly<Record<string, string>> }): VNode {
  return (
    <>
      {Object.entries(labels).map(([label, value]) => (
        <Fact key={label} name={<Text>{label}</Text>}>
          <Text>{value}</Text>
        </Fact>
      ))}
    </>
  )
}
