/** Light, dark, or as the system says. The choice is kept for this browser. */
import { computed, signal } from '@preact/signals'

const STORED = 'leasehold-theme'
const CHOICES = ['system', 'light', 'dark'] as const
export type ThemeChoice = (typeof CHOICES)[number]

const systemDark = matchMedia('(prefers-color-scheme: dark)')
const dark = signal(systemDark.matches)
systemDark.addEventListener('change', () => {
  dark.value = systemDark.matches
})

export const themeChoice = signal<ThemeChoice>(stored())
/** The colours that are shown. */
export const theme = computed(() => (themeChoice.value === 'system' ? (dark.value ? 'dark' : 'light') : themeChoice.value))

theme.subscribe(shown => {
  document.documentElement.dataset.theme = shown
})

function stored(): ThemeChoice {
  const kept = localStorage.getItem(STORED)
  return CHOICES.find(choice => choice === kept) ?? 'system'
}

/** The next of: as the system, light, dark. */
export function nextTheme(): void {
  const next = CHOICES[(CHOICES.indexOf(themeChoice.value) + 1) % CHOICES.length]!
  themeChoice.value = next
  if (next === 'system') localStorage.removeItem(STORED)
  else localStorage.setItem(STORED, next)
}
