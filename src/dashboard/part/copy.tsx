/** Copies what the dashboard shows, as a command or a program. */
import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import { snippetsFor } from '../copy-as.ts'

export function CopyAs({ resource }: { readonly resource: string }): VNode {
  const snippets = snippetsFor(resource, location.origin)
  const [chosen, setChosen] = useState<string>('CLI')
  const [copied, setCopied] = useState(false)
  const { text } = snippets.find(({ language }) => language === chosen) ?? snippets[0]!
  const copy = async () => {
    await navigator.clipboard.writeText(text).catch(() => {})
    setCopied(true)
    setTimeout(() => setCopied(false), 1_500)
  }
  return (
    <div class="copy-as">
      <div class="bar-of-buttons">
        <fieldset class="choice" aria-label="Language">
          {snippets.map(({ language }) => (
            <button type="button" key={language} aria-pressed={language === chosen} onClick={() => setChosen(language)}>
              {language}
            </button>
          ))}
        </fieldset>
        <button type="button" class="button plain" onClick={copy}>
          {copied ? 'Copied' : 'Copy'}
        </button>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long lines scroll, also by keyboard */}
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </div>
  )
}
