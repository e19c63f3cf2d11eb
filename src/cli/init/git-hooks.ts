/** The hooks of git: a block in the scripts `pre-commit` and `pre-push`, before what the user has there. */

export const GIT_HOOKS = ['pre-commit', 'pre-push'] as const
export type GitHook = (typeof GIT_HOOKS)[number]

const BEGIN = '# >>> leasehold guard'
const END = '# <<< leasehold guard\n'
const SHEBANG = '#!/bin/sh\n'

/** The script with our block, after its first line. Throws for a script that is not one of a shell. */
export function withGitHook(hook: GitHook, text: string | undefined, command: string): string {
  const clean = text === undefined ? SHEBANG : withoutGitHook(text)
  const first = clean.startsWith('#!') ? clean.slice(0, clean.indexOf('\n') + 1) : ''
  if (first === '' || !/\b(sh|bash|dash|zsh|ksh)\b/.test(first))
    throw new Error(`it is not a script of a shell. Add this to it yourself: ${command} --git ${hook}`)
  return `${first}${blockOf(hook, command)}${clean.slice(first.length)}`
}

function blockOf(hook: GitHook, command: string): string {
  if (hook === 'pre-commit') return `${BEGIN}\n${command} --git ${hook} || exit 1\n${END}`
  // git writes the refs to the input, and what follows in the script may read them too.
  return `${BEGIN}
leasehold_refs=$(cat)
printf '%s\\n' "$leasehold_refs" | ${command} --git ${hook} || exit 1
exec <<LEASEHOLD_REFS
$leasehold_refs
LEASEHOLD_REFS
${END}`
}

/** The script without our block. Undefined text is what is left of a script that we made. */
export function withoutGitHook(text: string): string {
  const begin = text.indexOf(BEGIN)
  const end = begin < 0 ? -1 : text.indexOf(END, begin)
  return end < 0 ? text : text.slice(0, begin) + text.slice(end + END.length)
}

export function isEmptyHook(text: string): boolean {
  return text === SHEBANG
}
