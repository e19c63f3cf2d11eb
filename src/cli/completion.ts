/** The completion scripts of shells, written from the commands themselves: a new option needs no line here. */
import type { Command } from 'commander'
import { usageError } from './exit.ts'

export const SHELLS = ['bash', 'zsh', 'fish'] as const

/** A command with its options, by the words that call it. The first is the program itself: no words. */
export interface CompletedCommand {
  readonly words: readonly string[]
  readonly summary: string
  readonly options: readonly CompletedOption[]
}

export interface CompletedOption {
  readonly names: readonly string[]
  readonly description: string
  readonly takesValue: boolean
  readonly choices: readonly string[]
}

export function completedCommands(command: Command, words: readonly string[] = []): readonly CompletedCommand[] {
  const options = command.options.map(({ short, long, description, required, optional, argChoices }) => ({
    names: [short, long].filter(name => name !== undefined),
    ...{ description, takesValue: required || optional, choices: argChoices ?? [] },
  }))
  const own = { words, summary: command.summary() || command.description(), options }
  return [own, ...command.commands.flatMap(child => completedCommands(child as Command, [...words, child.name()]))]
}

export function completionScript(shell: string, commands: readonly CompletedCommand[]): string {
  if (shell === 'bash') return bash(commands)
  if (shell === 'zsh') return zsh(commands)
  if (shell === 'fish') return fish(commands)
  throw usageError(`there is no completion for ${shell}`, `Use one of: ${SHELLS.map(name => `leasehold completion ${name}`).join(', ')}`)
}

/** The words that may follow those of a command. */
function nextWords(commands: readonly CompletedCommand[], { words }: CompletedCommand): readonly string[] {
  return commands
    .filter(other => other.words.length === words.length + 1 && words.every((word, i) => other.words[i] === word))
    .map(other => other.words.at(-1)!)
}

/**
 * A case for each command, by its words. Stops at --: what follows is a command of its own, completed by its name.
 */
function bash(commands: readonly CompletedCommand[]): string {
  return `# bash completion of leasehold. Made by: leasehold completion bash
${bashFunction(commands)}complete -o bashdefault -F _leasehold_words leasehold
`
}

/** The function that fills COMPREPLY. Its variables have names that are not special in zsh, which runs it too. */
function bashFunction(commands: readonly CompletedCommand[]): string {
  const cases = commands.map(command => {
    const words = [...nextWords(commands, command), ...command.options.flatMap(({ names }) => names)]
    return `    ${quoted(command.words.join(' '))}) offer=${quoted(words.join(' '))} ;;`
  })
  const choices = commands.flatMap(({ words, options }) =>
    options
      .filter(option => option.choices.length > 0)
      .flatMap(({ names, choices }) =>
        names.map(name => `    ${quoted([...words, name].join(' '))}) offer=${quoted(choices.join(' '))} ;;`),
      ),
  )
  const valued = [
    ...new Set(commands.flatMap(({ options }) => options.filter(({ takesValue }) => takesValue).flatMap(({ names }) => names))),
  ]
  const groups = commands.filter(command => nextWords(commands, command).length > 0).map(({ words }) => quoted(words.join(' ')))
  return `_leasehold_words() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev= called= offer= i
  [ "$COMP_CWORD" -gt 0 ] && prev=\${COMP_WORDS[COMP_CWORD-1]}
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case \${COMP_WORDS[i]} in
    --)
      if ((i == COMP_CWORD - 1)); then COMPREPLY=($(compgen -c -- "$cur")); else COMPREPLY=($(compgen -f -- "$cur")); fi
      return
      ;;
    ${valued.join('|')}) ((i++)) ;;
    -*) ;;
    *)
      case $called in
      ${groups.join('|')}) called="\${called:+$called }\${COMP_WORDS[i]}" ;;
      esac
      ;;
    esac
  done
  case "\${called:+$called }$prev" in
${choices.join('\n')}
  esac
  if [ -z "$offer" ]; then
    case $prev in
    ${valued.join('|')}) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
    case $called in
${cases.join('\n')}
    esac
  fi
  COMPREPLY=($(compgen -W "$offer" -- "$cur"))
}
`
}

/** Zsh runs the function of bash. It loads this file when leasehold is completed for the first time, and expects the answer from it. */
function zsh(commands: readonly CompletedCommand[]): string {
  return `#compdef leasehold
# zsh completion of leasehold. Made by: leasehold completion zsh
autoload -U +X bashcompinit && bashcompinit
${bashFunction(commands)}complete -o bashdefault -F _leasehold_words leasehold
if [ "$funcstack[1]" = _leasehold ]; then _bash_complete -o bashdefault -F _leasehold_words; fi
`
}

function fish(commands: readonly CompletedCommand[]): string {
  const lines = commands.flatMap(command => {
    const { words, options } = command
    const next = nextWords(commands, command)
    const called =
      words.length === 0
        ? '__fish_use_subcommand'
        : `__fish_seen_subcommand_from ${words[0]}${words.length > 1 ? `; and __fish_seen_subcommand_from ${words[1]}` : ''}`
    const here = `not __leasehold_runs; and ${called}`
    const open = words.length === 0 ? here : `${here}; and not __fish_seen_subcommand_from ${next.join(' ')}`
    return [
      ...next.map(word => {
        const summary = commands.find(other => other.words.join(' ') === [...words, word].join(' '))?.summary ?? ''
        return `complete -c leasehold -n ${quoted(open)} -f -a ${word} -d ${quoted(summary)}`
      }),
      ...options.map(({ names, description, takesValue, choices }) => {
        const flags = names.map(name => (name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`)).join(' ')
        const value = choices.length > 0 ? ` -x -a ${quoted(choices.join(' '))}` : takesValue ? ' -r' : ''
        return `complete -c leasehold -n ${quoted(here)} ${flags}${value} -d ${quoted(description)}`
      }),
    ]
  })
  return `# fish completion of leasehold. Made by: leasehold completion fish
function __leasehold_runs
  contains -- -- (commandline -opc)
end
function __leasehold_command
  set -l words (commandline -opc) (commandline -ct)
  set -l at (contains -i -- -- $words)
  complete -C (string join ' ' -- $words[(math $at + 1)..-1])
end
complete -c leasehold -n __leasehold_runs -x -a '(__leasehold_command)'
${lines.join('\n')}
`
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}
