/** The things of the picture that can be pointed at. */
import type { Bar, Mark, Message } from '../history.ts'

export type Pointed =
  | { readonly kind: 'bar'; readonly bar: Bar }
  | { readonly kind: 'mark'; readonly mark: Mark }
  | { readonly kind: 'message'; readonly message: Message }
  | { readonly kind: 'lane'; readonly name: string }
