/** The rules of a policy as an operator writes them. */

/** Lines of `rule=value`. Whole numbers are numbers, everything else is a text, such as a length of time. */
export function parseRules(text: string): Readonly<Record<string, string | number>> {
  const found = text
    .split(/[\n,]/)
    .map(line => line.trim())
    .filter(line => line !== '')
  return Object.fromEntries(
    found.map(line => {
      const [, rule, value] = /^([A-Za-z]+)\s*[=:]\s*(\S+)$/.exec(line) ?? []
      if (rule === undefined || value === undefined) throw new Error(`“${line}” is not a rule. Write one a line, as in capacity=3.`)
      return [rule, /^\d+$/.test(value) ? Number(value) : value]
    }),
  )
}
