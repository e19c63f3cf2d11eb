/** A response that is the same for every client. Its bytes are built and compressed once, so that repeated requests cost no more than a header. */
import { gzipSync } from 'node:zlib'
import type { HttpRequest, HttpResponse } from './route.ts'

export class StaticResponse {
  readonly #build: () => Uint8Array
  #plain: Uint8Array | undefined
  #compressed: Uint8Array | undefined

  /** `build` is called on the first request. */
  constructor(build: () => Uint8Array) {
    this.#build = build
  }

  for(request: HttpRequest, { headers = {}, ...rest }: Pick<HttpResponse, 'type' | 'headers'> = {}): HttpResponse {
    this.#plain ??= this.#build()
    const vary = { ...headers, Vary: 'Accept-Encoding' }
    if (!acceptsGzip(request.header('accept-encoding'))) return { status: 200, ...rest, headers: vary, body: this.#plain }
    this.#compressed ??= gzipSync(this.#plain)
    return { status: 200, ...rest, headers: { ...vary, 'Content-Encoding': 'gzip' }, body: this.#compressed }
  }
}

function acceptsGzip(accepted = ''): boolean {
  return /(^|,)[ \t]*gzip[ \t]*(,|$|;[ \t]*q=(1|0\.\d*[1-9]))/i.test(accepted)
}
