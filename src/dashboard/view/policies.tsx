/** The rules of each prefix. */
import type { VNode } from 'preact'
import { mayAct, planned, removePolicy, setPolicy } from '../action.ts'
import type { PoliciesAnswer } from '../answers.ts'
import { Button, Empty, RuleValue, Text, Waiting } from '../part/basics.tsx'
import { useReading } from '../query.ts'
import { href } from '../route.ts'
import { account } from '../server.ts'

const LINES = ['leasehold policy set jobs capacity=3', 'leasehold policy set db ttlMax=5m maxHold=1h', 'leasehold policy ls']

export function Policies(): VNode {
  const { data, error } = useReading<PoliciesAnswer>('/v1/policies', { every: 10_000, about: ({ type }) => type === 'policy' })
  if (data === undefined) return <Waiting error={error} />
  const scope = account.value?.allow.find(({ verb }) => verb === 'policy' || verb === 'admin')
  const maySet = mayAct('policy', '') || scope !== undefined
  return (
    <>
      <header class="title">
        <h1>Policies</h1>
        <span class="faint">Each rule counts from the longest prefix that has it.</span>
        <div class="actions">
          {maySet ? (
            <Button kind="main" onClick={() => (planned.value = setPolicy(scope?.prefix ?? '', {}))}>
              Set a policy
            </Button>
          ) : null}
        </div>
      </header>
      {data.policies.length === 0 ? (
        <Empty lines={LINES}>No policy is set. These lines set some:</Empty>
      ) : (
        <section class="card">
          <div class="scroll">
            <table class="plain policies">
              <thead>
                <tr>
                  <th>Prefix</th>
                  <th>Rules</th>
                  <th class="end">
                    <span class="hidden">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {data.policies.map(({ prefix, rules }) => (
                  <tr key={prefix}>
                    <td>
                      <a href={href('resources', '', { prefix })}>{prefix === '' ? 'everything' : <Text>{prefix}</Text>}</a>
                    </td>
                    <td>
                      {Object.entries(rules).map(([rule, value]) => (
                        <span class="rule" key={rule}>
                          {rule}{' '}
                          <b>
                            <RuleValue rule={rule} value={value} />
                          </b>
                        </span>
                      ))}
                    </td>
                    <td class="end">
                      {mayAct('policy', prefix) ? (
                        <>
                          <button type="button" class="link" onClick={() => (planned.value = setPolicy(prefix, rules))}>
                            change
                          </button>{' '}
                          <button type="button" class="link" onClick={() => (planned.value = removePolicy(prefix))}>
                            remove
                          </button>
                        </>
                      ) : null}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
    </>
  )
}
