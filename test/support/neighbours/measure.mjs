import { setImmediate as nextTurn } from 'node:timers/promises'
import { FULL } from './large-state.mjs'
import { NeighbourRig } from './rig.mjs'
const D = Number(process.env.DIV ?? 10), ONLY = process.env.ONLY
const steps = globalThis.leaseholdSteps
const cpu = () => { const { user, system } = process.cpuUsage(); return (user + system) / 1e6 }
const sizes = Object.fromEntries(Object.entries(FULL).map(([k, v]) => [k, ['revoked', 'reservations'].includes(k) ? v : Math.ceil(v / D)]))
console.log('loaded', cpu())
const rig = await NeighbourRig.open(sizes)
console.log('filled', cpu(), steps.count)
const rows = []
const N = Number(process.env.COPIES ?? 1)
const t00 = cpu(), s00 = steps.count
let copy = 0
for (const key of (process.env.KEYS ?? 'rich,poor').split(','))
  for (const [index, asked] of rig.operations(0).entries()) {
    const name = `${asked.part} ${asked.name} ${asked.way ?? ''}`
    if (ONLY && !name.includes(ONLY)) continue
    let over = false, longest = 0, turns = 0, before = steps.count, maxMs = 0
    const t0 = cpu()
    const watch = (async () => { let m = cpu(); while (!over) { await nextTurn(); const n = steps.count - before; before = steps.count; rig.isBusy = n > 200; turns++; if (n > longest) longest = n; const c = cpu(); maxMs = Math.max(maxMs, (c - m) * 1000); m = c } })()
    if (process.env.TRACE) console.log(key, name)
    const all = await Promise.all(Array.from({ length: N }, (_, i) => rig.ask(rig.operations(key === 'rich' ? i : i + 25)[index], key)))
    over = true; await watch
    rows.push({ key, name, status: all[0].status, refused: asked.refused, longest, turns, ms: (cpu() - t0) * 1000, maxMs, text: all[0].text.slice(0, 150) })
  }
console.log('done', cpu(), 'us/step', (cpu() - t00) * 1e6 / (steps.count - s00))
rows.sort((a, b) => b.longest - a.longest)
for (const r of rows.slice(0, Number(process.env.TOP ?? 60))) console.log(r.key, Math.round(r.longest), 'max', r.maxMs.toFixed(0) + 'ms', 'turns', r.turns, r.ms.toFixed(0) + 'ms', r.status, r.name)
console.log('--- unexpected')
for (const r of rows) if (r.key === 'rich' && (r.status >= 400 || r.status === 0) && !r.refused) console.log(r.status, r.name, r.text)
for (const r of rows) if (r.key === 'rich' && r.refused && r.status < 400) console.log('not refused', r.status, r.name, r.text)
process.exit(0)
