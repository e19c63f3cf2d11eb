/**
 * The file that has the secret of a key, for `leasehold key create --secret-file`: so that the secret never passes through the output of a job, which ends in a
 * log. A file that exists is read, as Kubernetes mounts its Secrets (a link, owned by root). Otherwise a new secret is written, for its user alone.
 */
import { closeSync, constants, readFileSync, writeFileSync } from 'node:fs'
import type { Clock } from '../clock.ts'
import { openPrivately } from '../private-file.ts'
import { isSecret, newSecret } from '../server/key-secret.ts'
import { usageError } from './exit.ts'

/** Written before the key exists: if the command fails after that, the next attempt finds the secret and uses it. */
export function secretIn(path: string, clock: Clock): string {
  const present = ofFile(path, () => readFileSync(path, 'utf8').trim())
  if (present === undefined) return newSecretIn(path, clock)
  if (isSecret(present)) return present
  throw usageError(
    `${path} has no secret of a key: lh_ and 43 random letters, digits, - or _`,
    'Name a file that does not exist, and the command writes a new secret to it',
  )
}

function newSecretIn(path: string, clock: Clock): string {
  const secret = newSecret(clock)
  const written = ofFile(path, () => {
    const file = openPrivately(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL)
    try {
      writeFileSync(file, `${secret}\n`)
    } finally {
      closeSync(file)
    }
    return secret
  })
  if (written === undefined) throw usageError(`${path} cannot be written: its folder does not exist`, 'Create the folder first')
  return written
}

/** Returns undefined if the file, or its folder, does not exist. */
function ofFile(path: string, act: () => string): string | undefined {
  try {
    return act()
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    if (code === undefined || !/^E[A-Z]+$/.test(code)) throw error
    throw usageError(`the file of --secret-file cannot be used: ${message}`, `Look at the rights of ${path}`)
  }
}
