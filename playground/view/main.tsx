/** The page of the playground: scenes, the picture, and what a person can do. It runs the package itself; nothing is sent anywhere. */
import '../browser/node-builtins.ts'
import { render } from 'preact'
import { App } from './app.tsx'
import './page.css'

/** The theme that a reader has chosen on the other pages of the site. */
function chosenTheme(): string | null {
  try {
    return localStorage.getItem('vitepress-theme-appearance')
  } catch {
    return null // a page that is opened as a file may have no storage
  }
}

const theme = chosenTheme()
if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme
render(<App />, document.getElementById('page')!)
