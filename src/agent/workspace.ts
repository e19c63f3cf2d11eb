/** The workspace of a folder: the root of its git worktree, and the prefix under which its paths are claimed (repository.ts). */
import type { Workspace } from './names.ts'
import { repositoryOf } from './repository.ts'

export { originPrefix } from './repository.ts'

/** Undefined outside of a git worktree. */
export async function workspaceOf(folder: string): Promise<Workspace | undefined> {
  const repository = await repositoryOf(folder)
  return repository && { root: repository.root, prefix: repository.prefix }
}
