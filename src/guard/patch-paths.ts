/** The files that a patch writes, in the form of Codex's apply_patch. Nothing else of a patch is looked at. */

const HEADERS = /^\*\*\* (?:Update File|Add File|Delete File|Move to): (.+?)\s*$/gm

/** At most `limit` paths, in their order, each once. */
export function pathsOfPatch(patch: string, limit: number): readonly string[] {
  const paths = new Set<string>()
  for (const [, path] of patch.matchAll(HEADERS)) {
    paths.add(path!)
    if (paths.size >= limit) break
  }
  return [...paths]
}
