// Writes the sentences of src/wording.ts as a Python file, from which the Python client makes the same sentences. `npm run build` first, then
// `node scripts/python-wording.mjs`. test/project/python-wording.test.ts fails if the file is not up to date.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = fileURLToPath(new URL('../', import.meta.url))
/** The file that is written. */
export const PYTHON_SENTENCES = join(root, 'clients/python/src/leasehold_client/_sentences.py')

/** The Python file for these templates, by reason. */
export function pythonSentences(sentences) {
  const rows = Object.entries(sentences).map(([reason, template]) => `    ${JSON.stringify(reason)}: ${JSON.stringify(template)},`)
  return [
    '"""The sentences of src/wording.ts, written by scripts/python-wording.mjs: change them there."""',
    '',
    '# ruff: noqa: E501',
    '# fmt: off',
    'from __future__ import annotations',
    '',
    'SENTENCES: dict[str, str] = {',
    ...rows,
    '}',
    '',
  ].join('\n')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { SENTENCES } = await import(pathToFileURL(join(root, 'dist/wording.js')).href)
  writeFileSync(PYTHON_SENTENCES, pythonSentences(SENTENCES))
}
