/** Work that may be asked for at any rate, and is done at most once per interval: at once after a pause, so that the first change is seen without a delay. */

export interface Paced {
  readonly ask: () => void
  /** Forgets what was asked for. */
  readonly end: () => void
}

export function paced(interval: number, work: () => void): Paced {
  let timer: ReturnType<typeof setTimeout> | undefined
  let done = Number.NEGATIVE_INFINITY
  const run = () => {
    timer = undefined
    done = performance.now()
    work()
  }
  return {
    ask: () => {
      if (timer !== undefined) return
      const wait = done + interval - performance.now()
      if (wait <= 0) run()
      else timer = setTimeout(run, wait)
    },
    end: () => {
      clearTimeout(timer)
      timer = undefined
    },
  }
}
