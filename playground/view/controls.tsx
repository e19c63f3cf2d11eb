/** The acts of a person on a process and on the stores, and the settings of the world. */
import { type Act, type ActName, processName, SETTINGS, type Settings } from '../settings.ts'
import type { PlaygroundWorld } from '../world.ts'

interface ControlsProps {
  readonly world: PlaygroundWorld
  readonly selected: number
  readonly onSelect: (number: number) => void
  readonly onAct: (act: Omit<Act, 'at'>) => void
  /** Settings that only a new run can have. */
  readonly onSettings: (settings: Partial<Settings>) => void
}

interface Button {
  readonly act: ActName
  readonly label: string
  readonly amount?: number
}

const PROCESS_BUTTONS: readonly Button[] = [
  { act: 'acquire', label: 'Acquire' },
  { act: 'release', label: 'Release' },
  { act: 'revoke', label: 'Revoke' },
  { act: 'pause', label: 'Pause 3 s', amount: 3_000 },
  { act: 'pause', label: 'Pause 12 s', amount: 12_000 },
  { act: 'suspend', label: 'Sleep 12 s', amount: 12_000 },
  { act: 'kill', label: 'Kill' },
  { act: 'restart', label: 'Restart' },
  { act: 'cut', label: 'Cut link' },
  { act: 'heal', label: 'Heal link' },
  { act: 'fast', label: 'Clock +1 %', amount: 1 },
  { act: 'fast', label: 'Clock −1 %', amount: -1 },
  { act: 'jump', label: 'Wall clock +1 h', amount: 3_600_000 },
]

const STORE_BUTTONS: readonly Button[] = [
  { act: 'stopLog', label: 'Stop the stores' },
  { act: 'startLog', label: 'Start them' },
  { act: 'loseTail', label: 'Lose the tail', amount: 4 },
]

/** Settings that change while the world runs, with their steps. */
const LIVE = [
  ['ttl', 1_000],
  ['grace', 1_000],
  ['lockDelay', 1_000],
  ['delay', 10],
  ['loss', 1],
] as const

export function Controls({ world, selected, onSelect, onAct, onSettings }: ControlsProps) {
  const { settings, processes } = world
  const process = processes[selected]
  const others = processes.filter(({ number }) => number !== selected)
  return (
    <div class="controls">
      <section aria-label="A process">
        <h2>
          <label>
            Process{' '}
            <select value={String(selected)} onChange={event => onSelect(Number(event.currentTarget.value))}>
              {processes.map(({ name, number }) => (
                <option key={name} value={String(number)}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        </h2>
        <div class="buttons">
          {PROCESS_BUTTONS.map(({ act, label, amount }) => (
            <button
              type="button"
              key={label}
              disabled={isUseless(act, process)}
              onClick={() => onAct({ act, who: selected, ...(amount !== undefined && { amount }) })}
            >
              {label}
            </button>
          ))}
          {others.length > 0 && (
            <label class="transfer">
              Hand over to{' '}
              <select
                value=""
                onChange={event =>
                  event.currentTarget.value !== '' && onAct({ act: 'transfer', who: selected, amount: Number(event.currentTarget.value) })
                }
              >
                <option value="">…</option>
                {others.map(({ number }) => (
                  <option key={number} value={String(number)}>
                    {processName(number)}
                  </option>
                ))}
              </select>
            </label>
          )}
        </div>
      </section>
      <section aria-label="The stores">
        <h2>Stores</h2>
        <div class="buttons">
          {STORE_BUTTONS.map(({ act, label, amount }) => (
            <button type="button" key={label} onClick={() => onAct({ act, ...(amount !== undefined && { amount }) })}>
              {label}
            </button>
          ))}
        </div>
      </section>
      <section aria-label="Settings">
        <h2>Settings</h2>
        <div class="settings">
          <label>
            <input
              type="checkbox"
              checked={settings.fencing === 1}
              onChange={event => onAct({ act: 'fencing', amount: event.currentTarget.checked ? 1 : 0 })}
            />
            the resource checks tokens
          </label>
          <label>
            <input
              type="checkbox"
              checked={settings.plain === 1}
              onChange={event => onSettings({ plain: event.currentTarget.checked ? 1 : 0 })}
            />
            a plain lock beside it
          </label>
          {LIVE.map(([name, step]) => {
            const { label, low, high, unit } = SETTINGS[name]
            const value = settings[name]
            return (
              <label key={name} class="range">
                <span>{label}</span>
                <input
                  type="range"
                  min={low}
                  max={high}
                  step={step}
                  value={value}
                  onChange={event => onAct({ act: name, amount: Number(event.currentTarget.value) })}
                />
                <output>{unit === 's' ? `${value / 1_000} s` : `${value}`}</output>
              </label>
            )
          })}
          <label class="range">
            <span>processes</span>
            <input
              type="range"
              min={1}
              max={50}
              value={settings.processes}
              onChange={event => onSettings({ processes: Number(event.currentTarget.value) })}
            />
            <output>{settings.processes}</output>
          </label>
        </div>
      </section>
    </div>
  )
}

function isUseless(act: ActName, process: PlaygroundWorld['processes'][number] | undefined): boolean {
  if (process === undefined) return true
  const { machine, wants, world, name } = process
  if (act === 'acquire') return wants || !machine.alive
  if (act === 'release') return !wants || !machine.alive
  if (act === 'restart') return machine.alive
  if (act === 'cut') return world.links.cut.has(name)
  if (act === 'heal') return !world.links.cut.has(name)
  return !machine.alive
}
