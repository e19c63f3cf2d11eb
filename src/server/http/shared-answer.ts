/** Bytes that everyone may have, made once: anyone may ask for them as often as the connection takes them, and no answer costs more than its head. */
import { gzipSync } from 'node:zlib'
import type { HttpAnswer, HttpRequest } from './route.ts'

export class Shared {
  readonly #make: () => Uint8Array
  #plain: Uint8Array | undefined
  #packed: Uint8Array | undefined

  /** `make` is called when somebody asks for the first time. */
  constructor(make: () => Uint8Array) {
    this.#make = make
  }

  answer(ask: HttpRequest, { headers = {}, ...answer }: Pick<HttpAnswer, 'type' | 'headers'> = {}): HttpAnswer {
    this.#plain ??= this.#make()
    const vary = { ...headers, Vary: 'Accept-Encoding' }
    if (!takesGzip(ask.header('accept-encoding'))) return { status: 200, ...answer, headers: vary, body: this.#plain }
    this.#packed ??= gzipSync(this.#plain)
    return { status: 200, ...answer, headers: { ...vary, 'Content-Encoding': 'gzip' }, body: this.#packed }
  }
}

function takesGzip(accepted = ''): boolean {
  return /(^|,)[ \t]*gzip[ \t]*(,|$|;[ \t]*q=(1|0\.\d*[1-9]))/i.test(accepted)
}
