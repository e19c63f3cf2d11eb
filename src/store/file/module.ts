/** `file:PATH`: a log in a SQLite file, for the processes of one machine. */
import type { StoreModule } from '../store-module.ts'
import { requiredFilePath } from './url.ts'

export const file: StoreModule = {
  name: 'file',
  schemes: ['file'],
  url: 'file:PATH',
  purpose: 'the processes of one machine, on a local disk',
  async fromUrl(url, { own }) {
    const path = requiredFilePath(url)
    const { FileStore } = await import('./file.ts')
    return new FileStore({ path, ...(own !== undefined && { own }) })
  },
  async announcements(url, clock) {
    return new (await import('./announcements.ts')).FileAnnouncements(requiredFilePath(url), clock)
  },
  async certify(url, options) {
    return (await import('./certification.ts')).fileUnderTest(url, options)
  },
}
