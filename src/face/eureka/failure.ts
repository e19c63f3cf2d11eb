/** An answer of Eureka that is not the usual one. */
import type { HttpFaceFailure, HttpFaceResponse } from '../face.ts'

export class EurekaFailure extends Error {
  override readonly name = 'EurekaFailure'
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }

  get response(): HttpFaceResponse {
    return { status: this.status, type: 'text/plain; charset=utf-8', body: this.message }
  }
}

export function failureResponse({ message, status }: HttpFaceFailure): HttpFaceResponse {
  return new EurekaFailure(status, message).response
}
