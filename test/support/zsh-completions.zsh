# Prints what an interactive zsh offers for a line: zsh -f zsh-completions.zsh FOLDER LINE. FOLDER contains completion functions, and may be written.
# A second zsh runs in a pseudo-terminal and gets the line and a tab. Its compadd prints each match between two marks.
zmodload zsh/zpty || exit 1
zpty z zsh -f -i
cat > $1/setup <<'SETUP'
PROMPT=
fpath=($FOLDER $fpath)
autoload -Uz compinit
compinit -u -d $FOLDER/dump
bindkey '^I' complete-word
mark() { print -r -- '<<<>>>' }
compprefuncs=(mark)
comppostfuncs=(mark exit)
zstyle ':completion:*' insert-tab false
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return $?; fi
  typeset -a __hits
  builtin compadd -A __hits "$@"
  local hit
  for hit in $__hits; do print -r -- "$hit"; done
  builtin compadd "$@"
}
print set-up
SETUP
zpty -w z "FOLDER=$1; source $1/setup"
repeat 20; do zpty -r z line; [[ $line == set-up* ]] && break; done
zpty -w -n z "$2"$'\t'
integer marks=0
while zpty -r z line; do
  if [[ $line == *'<<<>>>'* ]]; then (( ++marks == 2 )) && exit 0; continue; fi
  (( marks == 1 )) && print -r -- "${line%$'\r'*}"
done
exit 2
