/** Runs scenarios against a driver: `node run.js [--only TEXT] COMMAND [ARGUMENT …]`. Ends with 1 when one fails. */
import { readdirSync, readFileSync } from 'node:fs'
import { Conductor } from './conductor.ts'
import type { Scenario } from './scenario.ts'

const args = process.argv.slice(2)
const only = args[0] === '--only' ? args.splice(0, 2)[1]! : ''
const folder = process.env.SCENARIOS ?? new URL('scenarios/', import.meta.url).pathname
let passed = 0
let failed = 0
for (const file of readdirSync(folder).sort()) {
  if (!file.endsWith('.json') || !file.includes(only)) continue
  const scenario = JSON.parse(readFileSync(`${folder}/${file}`, 'utf8')) as Scenario
  try {
    await new Conductor(args, scenario).run()
    passed++
    console.log(`ok      ${file}: ${scenario.title}`)
  } catch (error) {
    failed++
    console.log(`FAILED  ${file}: ${scenario.title}\n        ${(error as Error).message}`)
  }
}
console.log(`${passed} passed, ${failed} failed`)
// A name that no scenario has must not count as success.
process.exitCode = failed === 0 && passed > 0 ? 0 : 1
setImmediate(() => process.exit())
