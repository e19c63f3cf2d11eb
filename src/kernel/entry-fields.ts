/** The fields of comparisons and changes of entries, for the rows of the command table that have them. */
import { choice, count, defaulted, type FieldsOf, flag, id, list, name, needed, optional, record, textOf } from './codec/field.ts'
import { COMPARED, type Comparison, type EntryChange, type GrantChange, MAX_CHANGES, MAX_COMPARISONS, RELATIONS } from './entry-command.ts'
import { VALUE_BYTES } from './name.ts'

export const comparison = record<Comparison>({
  key: needed(name),
  field: needed(choice(COMPARED)),
  is: needed(choice(RELATIONS)),
  number: defaulted(count),
  value: defaulted(textOf(VALUE_BYTES)),
})

const entryChangeFields: FieldsOf<EntryChange> = {
  key: needed(name),
  value: defaulted(textOf(VALUE_BYTES)),
  lease: optional(id),
  delete: defaulted(flag),
}
export const entryChange = record<EntryChange>(entryChangeFields)
export const grantChange = record<GrantChange>({ ...entryChangeFields, own: defaulted(flag) })

export const compare = defaulted(list(comparison, MAX_COMPARISONS))
export const changes = defaulted(list(entryChange, MAX_CHANGES))
export const grantChanges = defaulted(list(grantChange, MAX_CHANGES))
