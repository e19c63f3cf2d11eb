/** Asks once before an action, with what it will do, and reports the outcome in one line. */
import type { VNode } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { type ActionField, dismissLine, doneLines, noteDone, type PlannedAction, planned } from '../action.ts'
import type { PreviewAnswer } from '../answers.ts'
import { visible } from '../format.ts'
import { messageOf, send } from '../server.ts'
import { Exact, Holder, Text } from './basics.tsx'

export function ActionDialog(): VNode | null {
  const action = planned.value
  return action === undefined ? null : <Asking action={action} key={action.title} />
}

function Asking({ action }: { readonly action: PlannedAction }): VNode {
  const dialog = useRef<HTMLDialogElement>(null)
  const [values, setValues] = useState(() => Object.fromEntries((action.fields ?? []).map(({ name, value }) => [name, value])))
  const [preview, setPreview] = useState<PreviewAnswer | undefined>(undefined)
  const [problem, setProblem] = useState<string | undefined>(undefined)
  const [busy, setBusy] = useState(false)

  useEffect(() => {
    dialog.current?.showModal()
  }, [])

  const asked = action.preview === undefined ? undefined : JSON.stringify(action.preview(values))
  useEffect(() => {
    if (asked === undefined) return
    let current = true
    send<PreviewAnswer>('POST', '/v1/preview', JSON.parse(asked) as object).then(
      answer => {
        if (current) setPreview(answer)
      },
      error => {
        if (current) setProblem(messageOf(error))
      },
    )
    return () => {
      current = false
    }
  }, [asked])

  const close = () => {
    planned.value = undefined
  }
  const confirm = async () => {
    setBusy(true)
    setProblem(undefined)
    try {
      const answer = await action.run(values)
      noteDone(action.done, answer)
      close()
    } catch (error) {
      setProblem(messageOf(error))
      setBusy(false)
    }
  }
  const refused = preview !== undefined && !preview.allowed
  return (
    <dialog ref={dialog} class="asking" onClose={close} aria-labelledby="asking-title">
      <form
        onSubmit={event => {
          event.preventDefault()
          void confirm()
        }}
      >
        <h2 id="asking-title">
          <Text>{action.title}</Text>
        </h2>
        {action.says === undefined ? null : (
          <p class="says">
            <Text>{action.says}</Text>
          </p>
        )}
        {action.preview === undefined ? null : preview === undefined ? (
          <p class="says">Reading what this will do…</p>
        ) : (
          <Effects {...preview} />
        )}
        {(action.fields ?? []).map(field => (
          <Field
            key={field.name}
            field={field}
            value={values[field.name] ?? ''}
            onValue={value => setValues(all => ({ ...all, [field.name]: value }))}
          />
        ))}
        {problem === undefined ? null : (
          <p class="problem" role="alert">
            <Text>{problem}</Text>
          </p>
        )}
        <div class="buttons">
          <button type="button" class="button plain" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
          <button type="submit" class={`button ${action.danger === true ? 'danger' : 'main'}`} disabled={busy || refused}>
            {busy ? 'Working…' : action.verb}
          </button>
        </div>
      </form>
    </dialog>
  )
}

function Effects({ says, allowed, why, ends, endsTotal, next }: PreviewAnswer): VNode {
  return (
    <div class="effects">
      <p class="says">
        <Text>{says}</Text>
      </p>
      {allowed ? null : (
        <p class="problem">
          <Text>{why ?? 'This key may not do it.'}</Text>
        </p>
      )}
      {ends.length === 0 ? null : (
        <ul aria-label="Leases that end">
          {ends.slice(0, 8).map(({ lease, holder, names }) => (
            <li key={lease}>
              <Holder name={holder} link={false} /> <Text>{names.slice(0, 3).join(', ')}</Text>
              {names.length > 3 ? ` and ${names.length - 3} more` : ''}
            </li>
          ))}
          {endsTotal > 8 ? <li>and {endsTotal - 8} more</li> : null}
        </ul>
      )}
      {next.length === 0 ? null : (
        <ul aria-label="Waiters that are next" class="next">
          {next.slice(0, 8).map(({ resource, lease, holder }) => (
            <li key={`${resource} ${lease}`}>
              <Text>{resource}</Text> → <Holder name={holder} link={false} />
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}

interface FieldProps {
  readonly field: ActionField
  readonly value: string
  readonly onValue: (value: string) => void
}

function Field({ field: { name, label, hint, kind = 'text' }, value, onValue }: FieldProps): VNode {
  const id = `field-${name}`
  const said = hint === undefined ? {} : { 'aria-describedby': `${id}-hint` }
  if (kind === 'check')
    return (
      <div class="field check">
        <input
          id={id}
          type="checkbox"
          checked={value === 'yes'}
          onChange={event => onValue(event.currentTarget.checked ? 'yes' : '')}
          {...said}
        />
        <label for={id}>{label}</label>
        <small id={`${id}-hint`}>{hint}</small>
      </div>
    )
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {kind === 'lines' ? (
        <textarea id={id} rows={5} value={value} onInput={event => onValue(event.currentTarget.value)} spellcheck={false} {...said} />
      ) : (
        <input
          id={id}
          type="text"
          value={value}
          maxLength={512}
          onInput={event => onValue(event.currentTarget.value)}
          autocomplete="off"
          {...said}
        />
      )}
      <small id={`${id}-hint`}>{hint}</small>
    </div>
  )
}

/** Shows what was done, with the revision at which it was decided. */
export function DoneLines(): VNode {
  return (
    <div class="done-lines" role="status">
      {doneLines.value.map(({ id, text, revision }) => (
        <p key={id}>
          <span>{visible(text)}</span>
          {revision === undefined ? null : (
            <span class="faint">
              revision <Exact value={revision} what="revision" />
            </span>
          )}
          <button type="button" class="close" onClick={() => dismissLine(id)} aria-label="Dismiss">
            ×
          </button>
        </p>
      ))}
    </div>
  )
}
