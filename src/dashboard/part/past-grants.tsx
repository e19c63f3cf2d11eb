/**
 * The past holders of a resource, or the past terms of an election, newest first: how long each lasted, when it ended, and why; and how the command ended
 * that `leasehold run` ran meanwhile.
 */
import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import type { PastHolder } from '../answers.ts'
import { count, duration, signalOf } from '../format.ts'
import { Ago, Exact, Holder, Length, Tag, Text } from './basics.tsx'

/** Rows that are shown at first, and more after each click. */
export const SHOWN_PAST = 20

interface PastGrantsProps {
  readonly past: readonly PastHolder[]
  /** A holder has this name here. */
  readonly holder: 'Holder' | 'Leader'
}

export function PastGrants({ past, holder: title }: PastGrantsProps): VNode | null {
  const [shown, setShown] = useState(SHOWN_PAST)
  if (past.length === 0) return null
  const hasRuns = past.some(({ exit }) => exit !== undefined)
  return (
    <div class="scroll">
      {hasRuns ? <RunSummary past={past} /> : null}
      <table class={`plain past ${hasRuns ? 'with-runs' : ''}`}>
        <thead>
          <tr>
            <th>{title}</th>
            <th>{title === 'Leader' ? 'Led for' : 'Held for'}</th>
            <th>Ended</th>
            <th>Cause</th>
            {hasRuns ? <th class="run-cell">Command</th> : null}
            <th class="end">Token</th>
          </tr>
        </thead>
        <tbody>
          {past
            .slice(-shown)
            .reverse()
            .map(grant => (
              <tr key={`${grant.lease} ${grant.token}`} data-failed={isFailed(grant)}>
                <td>
                  <Holder name={grant.holder} />
                </td>
                <td>
                  <Length ms={grant.until - grant.since} />
                </td>
                <td>
                  <Ago at={grant.until} />
                </td>
                <td>
                  <Tag kind={grant.cause} />
                  {grant.by === undefined ? null : (
                    <span class="faint">
                      {' '}
                      by <Text>{grant.by}</Text>
                    </span>
                  )}
                </td>
                {hasRuns ? (
                  <td class="run-cell">
                    <Run grant={grant} />
                  </td>
                ) : null}
                <td class="end">
                  <Exact value={grant.token} what="token" />
                </td>
              </tr>
            ))}
        </tbody>
      </table>
      {past.length > shown ? (
        <button type="button" class="link more" onClick={() => setShown(shown + SHOWN_PAST)}>
          show {count(Math.min(SHOWN_PAST, past.length - shown))} more of {count(past.length)}
        </button>
      ) : null}
    </div>
  )
}

export function isFailed({ exit }: PastHolder): boolean {
  return exit !== undefined && exit !== 0
}

/** Shows how the command of a holder ended: in words, so that colour is not needed to see it. */
function Run({ grant }: { readonly grant: PastHolder }): VNode | null {
  const { exit, ran, command } = grant
  if (exit === undefined) return <span class="faint">no command</span>
  return (
    <span class="run">
      {exit === 0 ? (
        <Tag kind="passing">exit 0</Tag>
      ) : (
        <span title={signalOf(exit)}>
          <Tag kind="failed">{`✗ failed, exit ${exit}`}</Tag>
        </span>
      )}
      {ran === undefined ? null : (
        <span>
          ran <Length ms={ran} />
        </span>
      )}
      {command === undefined || command === '' ? null : (
        <span class="faint">
          <Text>{command}</Text>
        </span>
      )}
    </span>
  )
}

/** Shows how many runs failed, and how long one usually takes. */
function RunSummary({ past }: { readonly past: readonly PastHolder[] }): VNode {
  const runs = past.filter(({ exit }) => exit !== undefined)
  const failed = runs.filter(isFailed)
  const lengths = runs.flatMap(({ ran }) => (ran === undefined ? [] : [ran])).sort((a, b) => a - b)
  const last = failed.at(-1)
  return (
    <p class="note runs">
      {failed.length === 0
        ? `None of the last ${count(runs.length)} runs failed`
        : `${count(failed.length)} of the last ${count(runs.length)} runs failed`}
      {last === undefined ? null : (
        <>
          , the last one <Ago at={last.until} />
        </>
      )}
      {lengths.length < 3 ? '.' : `. A run usually takes ${duration(lengths[lengths.length >> 1]!)}.`}
    </p>
  )
}
