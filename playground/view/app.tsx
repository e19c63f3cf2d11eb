import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { MAX_LINKED, readLink, writeLink } from '../link.ts'
import { Player } from '../player.ts'
import { SCENES, type Scene } from '../scenes.ts'
import type { Act, Settings } from '../settings.ts'
import { Controls } from './controls.tsx'
import { explain } from './explanation.ts'
import type { Pointed } from './pointed.ts'
import { Stage } from './stage.tsx'

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8] as const
/** A frame moves the world by at most this much real time: a tab that was in the background goes on where it was. */
const LONGEST_FRAME = 100
/** With reduced motion the picture moves in steps of this, ms of true time. */
const STEP = 500
const SPEED = 2

/** A run of a scene, with what a person has changed. */
interface Run {
  readonly scene: Scene
  readonly player: Player
  readonly isChanged: boolean
}

function begin(scene: Scene, changed?: { readonly settings: Partial<Settings>; readonly acts: readonly Act[] }): Run {
  const { settings, acts } = changed ?? scene
  return { scene, player: new Player(settings, acts), isChanged: changed !== undefined }
}

export function App() {
  const initial = useMemo(() => readLink(location.hash), [])
  const [run, setRun] = useState<Run>(() => (initial.kind === 'read' ? begin(initial.scene, initial.changed) : begin(SCENES[0]!)))
  const [problem, setProblem] = useState(initial.kind === 'damaged' ? initial.sentence : '')
  const reducesMotion = useMemo(() => matchMedia('(prefers-reduced-motion: reduce)').matches, [])
  const [isRunning, setRunning] = useState(initial.kind === 'read' && initial.at === 0 && !reducesMotion)
  const [speed, setSpeed] = useState<number>(SPEED)
  const [selected, setSelected] = useState(0)
  const [pointed, setPointed] = useState<Pointed>()
  const [, setFrame] = useState(0)
  const [copied, setCopied] = useState('')
  const stage = useRef<HTMLDivElement>(null)
  const scenes = useRef<HTMLElement>(null)
  const [width, setWidth] = useState(1_000)
  const { player, scene } = run
  const { world } = player
  const redraw = useCallback(() => setFrame(frame => frame + 1), [])

  /** Begins a run. With `at`, it goes on from that time. */
  const open = useCallback(
    (next: Run, at = 0) => {
      setRun(next)
      setPointed(undefined)
      setCopied('')
      setSelected(selected => Math.min(selected, next.player.world.processes.length - 1))
      if (at > 0) void next.player.run(at).then(redraw)
    },
    [redraw],
  )

  useEffect(() => {
    if (initial.kind === 'read' && initial.at > 0) void player.run(initial.at).then(redraw)
    const changed = () => {
      const link = readLink(location.hash)
      setProblem(link.kind === 'damaged' ? link.sentence : '')
      if (link.kind === 'damaged') return
      setRunning(link.at === 0 && !reducesMotion)
      open(begin(link.scene, link.changed), link.at)
    }
    addEventListener('hashchange', changed)
    return () => removeEventListener('hashchange', changed)
  }, [])

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(300, Math.floor(entry!.contentRect.width))))
    observer.observe(stage.current!)
    return () => observer.disconnect()
  }, [])

  // On a narrow screen the scenes are in a row that scrolls.
  useEffect(() => {
    const row = scenes.current!
    const chosen = row.querySelector<HTMLElement>('[aria-current]')
    if (chosen !== null) row.scrollLeft = chosen.offsetLeft - row.offsetLeft - 40
  }, [scene])

  // The world advances with the frames of the browser, and not at all while the tab is hidden.
  useEffect(() => {
    if (!isRunning) return
    let frame = 0
    let last: number | undefined
    let due = 0
    let isOver = false
    const tick = async (at: number) => {
      due += Math.min(LONGEST_FRAME, Math.max(0, at - (last ?? at))) * speed
      last = at
      const step = reducesMotion ? STEP : 0
      if (due >= step && due > 0) {
        const ms = due
        due = 0
        await player.run(world.now + ms)
        redraw()
      }
      if (!isOver) frame = requestAnimationFrame(at => void tick(at))
    }
    frame = requestAnimationFrame(at => void tick(at))
    return () => {
      isOver = true
      cancelAnimationFrame(frame)
    }
  }, [isRunning, speed, player])

  const restart = useCallback(
    (changed?: { readonly settings: Partial<Settings>; readonly acts: readonly Act[] }) => {
      const kept = changed ?? (run.isChanged ? { settings: player.settings, acts: player.acts } : undefined)
      open(begin(scene, kept))
    },
    [run, open],
  )

  const step = useCallback(() => {
    setRunning(false)
    void player.run(world.now + 250).then(redraw)
  }, [player])

  const act = useCallback(
    (act: Omit<Act, 'at'>) => {
      if (!player.do(act)) return setProblem('This run has as many acts as a link can hold. Begin it again to go on.')
      setRun(run => ({ ...run, isChanged: true }))
      void player.run(world.now + 1).then(redraw)
    },
    [player],
  )

  /** Chooses a process, and explains it. */
  const select = useCallback(
    (number: number) => {
      const process = world.processes[Math.min(Math.max(0, number), world.processes.length - 1)]!
      setSelected(process.number)
      setPointed({ kind: 'lane', name: process.name })
    },
    [world],
  )

  const choose = (next: Scene) => {
    setProblem('')
    history.replaceState(null, '', `#${writeLink({ scene: next, at: 0 })}`)
    open(begin(next))
    setRunning(!reducesMotion)
  }

  const copy = async () => {
    setRunning(false)
    if (world.now > MAX_LINKED - 1) return setCopied('A link holds the first ten minutes of a run.')
    const changed = run.isChanged ? { settings: player.settings, acts: player.acts } : undefined
    // A link holds whole milliseconds.
    const at = Math.ceil(world.now)
    await player.run(at)
    redraw()
    history.replaceState(null, '', `#${writeLink({ scene, at, ...(changed !== undefined && { changed }) })}`)
    try {
      await navigator.clipboard.writeText(location.href)
      setCopied('The link is copied.')
    } catch {
      setCopied('The link is in the address bar.')
    }
  }

  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      const { target } = event
      if (event.ctrlKey || event.metaKey || event.altKey || target instanceof HTMLInputElement || target instanceof HTMLSelectElement)
        return
      const isButton = target instanceof HTMLButtonElement || target instanceof HTMLAnchorElement
      const places = SPEEDS.indexOf(speed as (typeof SPEEDS)[number])
      if (event.key === ' ' && !isButton) setRunning(running => !running)
      else if (event.key === 'ArrowRight') step()
      else if (event.key === 'Home') restart()
      else if (event.key === '+') setSpeed(SPEEDS[Math.min(SPEEDS.length - 1, places + 1)]!)
      else if (event.key === '-') setSpeed(SPEEDS[Math.max(0, places - 1)]!)
      else if (event.key === 'ArrowUp') select(selected - 1)
      else if (event.key === 'ArrowDown') select(selected + 1)
      else return
      event.preventDefault()
    }
    addEventListener('keydown', keys)
    return () => removeEventListener('keydown', keys)
  }, [speed, step, restart, select, selected])

  const isOver = world.now >= scene.length
  return (
    <main data-scene={scene.name} data-now={Math.floor(world.now)} data-running={isRunning} data-digest={world.timeline.digest}>
      <header>
        <h1>What happens when…</h1>
        <p>
          The package itself runs in this page, on a virtual clock and a virtual network. <a href="../playground.html">About this page</a>
        </p>
      </header>
      <nav aria-label="Scenes" ref={scenes}>
        {SCENES.map(item => (
          <button type="button" key={item.name} aria-current={item === scene ? 'true' : undefined} onClick={() => choose(item)}>
            {item.title}
          </button>
        ))}
      </nav>
      {problem !== '' && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      <section class="scene">
        <p class="text">{scene.text}</p>
        <ul class="claims" aria-label="What this scene shows">
          {run.isChanged ? (
            <li class="open">The scene was changed: see for yourself what is true of it now.</li>
          ) : (
            scene.claims.map(claim => {
              const state = !isOver ? 'open' : claim.holds(world) ? 'true' : 'false'
              return (
                <li key={claim.text} class={state} data-claim={state}>
                  {claim.text}
                </li>
              )
            })
          )}
        </ul>
      </section>
      <div class="transport">
        <button type="button" class="primary" onClick={() => setRunning(!isRunning)}>
          {isRunning ? 'Pause' : 'Play'}
        </button>
        <button type="button" onClick={step}>
          Step
        </button>
        <button type="button" onClick={() => restart()}>
          From the start
        </button>
        <label>
          speed
          <select value={String(speed)} onChange={event => setSpeed(Number(event.currentTarget.value))}>
            {SPEEDS.map(item => (
              <option key={item} value={String(item)}>
                {item} ×
              </option>
            ))}
          </select>
        </label>
        <button type="button" onClick={() => void copy()}>
          Link to this moment
        </button>
        <output aria-live="polite">{copied}</output>
        <span class="time">{(world.now / 1_000).toFixed(1)} s</span>
      </div>
      <div class="picture" ref={stage}>
        <Stage
          world={world}
          width={width}
          selected={world.processes[selected]?.name}
          onPoint={setPointed}
          onSelect={name => select(world.processes.findIndex(process => process.name === name))}
        />
      </div>
      <Legend hasPlain={world.settings.plain === 1} />
      <div class="below">
        <Controls
          world={world}
          selected={selected}
          onSelect={select}
          onAct={act}
          onSettings={settings =>
            restart({
              settings: { ...player.settings, ...settings },
              acts: player.acts.filter(({ who = 0 }) => who < (settings.processes ?? world.processes.length)),
            })
          }
        />
        <div class="words">
          <Explanation run={run} pointed={pointed} />
          <Recent run={run} />
        </div>
      </div>
    </main>
  )
}

function Legend({ hasPlain }: { readonly hasPlain: boolean }) {
  return (
    <ul class="legend">
      <li class="lease">lease: what is left of it is right of the line, by the holder’s own clock</li>
      {hasPlain && <li class="plain">plain lock (SET NX PX, a model for comparison)</li>}
      <li class="waiting">waits</li>
      <li class="double">two holders</li>
    </ul>
  )
}

/** Says what the pointer is on. It is read again while the world runs. */
function Explanation({ run: { player }, pointed }: { readonly run: Run; readonly pointed: Pointed | undefined }) {
  const [sentences, setSentences] = useState<readonly string[]>([])
  const { world } = player
  const second = Math.floor(world.now / 250)
  useEffect(() => {
    if (pointed === undefined) return setSentences([])
    let isOver = false
    void explain(world, pointed).then(found => {
      if (!isOver) setSentences(found)
    })
    return () => {
      isOver = true
    }
  }, [pointed, second, world])
  return (
    <section class="explanation" aria-label="Explanation">
      <h2>Why</h2>
      {sentences.length === 0 ? (
        <p class="hint">Point at a bar, a message, a mark or a name.</p>
      ) : (
        sentences.map(sentence => <p key={sentence}>{sentence}</p>)
      )}
    </section>
  )
}

/** The last things that happened, as text. */
function Recent({ run: { player } }: { readonly run: Run }) {
  const { history } = player.world
  const marks = history.marks.filter(({ kind }) => kind !== 'accepted')
  const lines = [...history.notes.slice(-10), ...marks.slice(-10)].sort((a, b) => b.at - a.at).slice(0, 8)
  return (
    <section class="recent" aria-label="What happened">
      <h2>What happened</h2>
      <ol>
        {lines.map(({ at, text }) => (
          <li key={`${at} ${text}`}>
            <time>{(at / 1_000).toFixed(1)} s</time> {text}
          </li>
        ))}
      </ol>
    </section>
  )
}
