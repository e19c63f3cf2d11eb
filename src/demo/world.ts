/** The scenes of the demonstration are made with these parts: programs that can crash, pauses, and chance. */
import type { Clock } from '../clock.ts'
import type { Leases } from '../leases.ts'

/** The surroundings of a scene. */
export interface DemoWorld {
  readonly clock: Clock
  /** Ends the demonstration. */
  readonly signal: AbortSignal
  /** A program of this name: leases of its own, and a way to crash it. */
  program(holder: string): DemoProgram
  pause(ms: number): Promise<void>
  between(low: number, high: number): number
  chance(probability: number): boolean
  pick<T>(list: readonly T[]): T
}

export interface DemoProgram extends AsyncDisposable {
  readonly leases: Leases
  /** Stops without a word. Its leases lapse. */
  crash(): void
}
