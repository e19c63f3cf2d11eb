/** Connections that speak RESP, and the turn of the loop in which all of them are answered. */
import type { Socket } from 'node:net'
import type { DoorContext } from './door.ts'

export class RespDoor {
  constructor(_context: DoorContext) {}

  take(socket: Socket, _first: Buffer): void {
    socket.end('-UNSUPPORTED not yet\r\n')
  }

  async close(): Promise<void> {}
}
