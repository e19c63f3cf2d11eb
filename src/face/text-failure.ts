/** An answer of a face that is not the usual one: a status and a plain text, as Consul and Eureka answer. */
import type { HttpFaceResponse } from './face.ts'

export class TextFailure extends Error {
  override readonly name = 'TextFailure'
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }

  get response(): HttpFaceResponse {
    return textResponse(this.status, this.message)
  }
}

export function textResponse(status: number, message: string): HttpFaceResponse {
  return { status, type: 'text/plain; charset=utf-8', body: message }
}
