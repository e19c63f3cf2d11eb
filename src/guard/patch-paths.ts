/** The files that a patch writes, in the form of Codex's apply_patch. Nothing else of a patch is looked at. */

/** Codex ignores blanks around a header, so an indented one counts. */
const HEADERS = /^[ \t]*\*\*\* (?:Update File|Add File|Delete File|Move to):([^\r\n]*)/gim

/** At most `limit` paths, in their order, each once. */
export function pathsOfPatch(patch: string, limit: number): readonly string[] {
  const paths = new Set<string>()
  for (const [, rest] of patch.matchAll(HEADERS)) {
    const path = rest!.trim()
    if (path !== '') paths.add(path)
    if (paths.size >= limit) break
  }
  return [...paths]
}
