// Which packages are in a bundle, and their licences, as these require.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Which package a module belongs to, by its path. */
export const PACKAGE = /^(.*\/node_modules\/((?:@[^/]+\/)?[^/]+))\//

/** A plugin of the bundler that adds the folders of the packages in the bundle. */
export function packagesIn(folders) {
  return {
    name: 'packages',
    moduleParsed: ({ id }) => {
      const [, folder] = PACKAGE.exec(id) ?? []
      if (folder !== undefined) folders.add(folder)
    },
  }
}

/** The name, version and licence of each package. */
export function licences(title, folders) {
  const texts = [...folders].map(folder => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    const file = readdirSync(folder).find(entry => /^licen[cs]e/i.test(entry))
    if (file === undefined) throw new Error(`${name} has no licence in ${folder}: the bundle must not contain it`)
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`
  })
  return `${title}\n\n${texts.sort().join(`\n${'-'.repeat(80)}\n\n`)}`
}
