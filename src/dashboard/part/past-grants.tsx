/** The past holders of a resource, or the past terms of an election, newest first: how long each lasted, when it ended, and why. */
import type { VNode } from 'preact'
import type { PastHolder } from '../answers.ts'
import { Ago, Exact, Holder, Length, Tag, Text } from './basics.tsx'

const SHOWN = 20

interface PastGrantsProps {
  readonly past: readonly PastHolder[]
  /** What a holder is called here. */
  readonly holder: 'Holder' | 'Leader'
}

export function PastGrants({ past, holder: title }: PastGrantsProps): VNode | null {
  if (past.length === 0) return null
  return (
    <div class="scroll">
      <table class="plain past">
        <thead>
          <tr>
            <th>{title}</th>
            <th>{title === 'Leader' ? 'Led for' : 'Held for'}</th>
            <th>Ended</th>
            <th>Cause</th>
            <th class="end">Token</th>
          </tr>
        </thead>
        <tbody>
          {[...past]
            .reverse()
            .slice(0, SHOWN)
            .map(({ lease, token, holder, since, until, cause, by }) => (
              <tr key={`${lease} ${token}`}>
                <td>
                  <Holder name={holder} />
                </td>
                <td>
                  <Length ms={until - since} />
                </td>
                <td>
                  <Ago at={until} />
                </td>
                <td>
                  <Tag kind={cause} />
                  {by === undefined ? null : (
                    <span class="faint">
                      {' '}
                      by <Text>{by}</Text>
                    </span>
                  )}
                </td>
                <td class="end">
                  <Exact value={token} what="token" />
                </td>
              </tr>
            ))}
        </tbody>
      </table>
    </div>
  )
}
