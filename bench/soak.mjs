// `npm run soak -- page`, `file`, `neighbours` or `fleet`: what only shows in long runs. Each file bench/soak-NAME.mjs says what it does and which options it has.
const SOAKS = ['page', 'file', 'neighbours', 'fleet']
const name = process.argv.slice(2).find(word => SOAKS.includes(word))
if (name === undefined) throw new Error(`name a soak: ${SOAKS.join(', ')}`)
await import(`./soak-${name}.mjs`)
