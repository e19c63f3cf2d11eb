/**
 * The format of everything that is kept: each record, each chunk of a snapshot and each backup begins with this number after its magic bytes. Bytes of
 * another format are refused before anything of them is used, and nothing is changed.
 *
 * A change of the bytes gets the next number, and a change of the rules a new version of the rules (`RULES`): from format 50 on, later builds read what earlier ones
 * wrote (docs/versioning.md). Builds that were never published wrote lower numbers, which are refused. The numbers began with 32: builds of the formats 1 and 2
 * refuse higher numbers in all three places as written by a newer build, but in a snapshot only from 32 on.
 */
import { NewerFormatError, OlderFormatError } from './bytes.ts'

export const FORMAT = 50

/** Throws NewerFormatError. Called before the checksum is read: a newer format may have another one. */
export function refuseNewer(format: number | undefined): void {
  if (format !== undefined && format > FORMAT) throw new NewerFormatError(`format ${format}, and this build reads format ${FORMAT}`)
}

/** Throws OlderFormatError. Called after the checksum was found right: damaged bytes must not be taken for those of an earlier build. */
export function refuseOlder(format: number): void {
  if (format < FORMAT) throw new OlderFormatError(`format ${format}, and this build reads format ${FORMAT}`)
}
