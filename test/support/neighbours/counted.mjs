// Counts steps of the built program: `node --import ./test/support/neighbours/counted.mjs PROGRAM`. Each function that is entered and each round of a loop is one
// step. Calls of the engine that work on a whole list or text count by its length. The same program takes the same number of steps every time, on any machine.
import { register } from 'node:module'

globalThis.leaseholdSteps = { count: 0 }
register('./count-steps.mjs', import.meta.url)

const steps = globalThis.leaseholdSteps
/** Characters of JSON, or bytes, that take about as long as one step. */
const CHARACTERS = 16

const { stringify, parse } = JSON
JSON.stringify = (...args) => {
  const text = stringify(...args)
  steps.count += (text?.length ?? 0) / CHARACTERS
  return text
}
JSON.parse = (...args) => {
  steps.count += String(args[0]).length / CHARACTERS
  return parse(...args)
}

for (const List of [Array, Uint32Array, Float64Array]) {
  const { sort } = List.prototype
  List.prototype.sort = function (compare) {
    // With a function, each comparison is counted there.
    if (compare === undefined) steps.count += this.length * Math.log2(this.length + 1)
    return sort.call(this, compare)
  }
}
