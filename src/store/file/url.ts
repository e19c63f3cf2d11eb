/** `file:PATH` and `file:///PATH`. */
import { fileURLToPath } from 'node:url'
import { LeaseError } from '../../errors.ts'

/** The path in a `file:` URL; undefined for a URL of another scheme. */
export function filePathOf(url: string): string | undefined {
  if (!/^file:/i.test(url)) return undefined
  if (!/^file:\/\//i.test(url)) return url.slice('file:'.length)
  try {
    return fileURLToPath(url)
  } catch (cause) {
    throw new LeaseError('INVALID', `${url} is not a file on this machine: write file:PATH, or file:///PATH with % as %25`, {
      cause,
      facts: { url },
    })
  }
}

export function requiredFilePath(url: string): string {
  const path = filePathOf(url)
  if (!path) throw new LeaseError('INVALID', 'file: needs a path, as in file:leases.db', { facts: { url } })
  return path
}
