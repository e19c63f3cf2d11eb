import { expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { BoundedProgram } from '../../src/devices/bounded-program.ts'
import { commandDiscovery, parseDevices } from '../../src/devices/command-discovery.ts'

const signal = new AbortController().signal

test('a command that prints JSON offers any devices, with the host as a label unless it names one', async () => {
  const program = new BoundedProgram({ clock: systemClock })
  const json =
    '{"devices":[{"id":"bench-1","labels":{"model":"x200","mem":16},"units":2,"utilisation":5,"processes":[{"pid":7}]},{"id":"b","labels":{"host":"other"}}]}'
  expect(await commandDiscovery({ program, command: `echo '${json}'`, host: 'a' })(signal)).toEqual({
    devices: [
      { id: 'bench-1', labels: { host: 'a', model: 'x200', mem: '16' }, units: 2, utilisation: 5, processes: [{ pid: 7 }] },
      { id: 'b', labels: { host: 'other' } },
    ],
    problems: [],
  })
})

test.each([
  ['not an object', '[1]', /not an object/],
  ['a slash in its id', '[{"id":"a/b"}]', /its id contains other characters/],
  ['an id of dots', '[{"id":".."}]', /its id is \. or \.\./],
  ['a label that is an object', '[{"id":"a","labels":{"x":{}}}]', /the label x is not a text/],
  ['a control character', '[{"id":"a","labels":{"x":"\\u001b[2J"}}]', /control characters/],
  ['no units', '[{"id":"a","units":0}]', /its units/],
  ['too many labels', `[{"id":"a","labels":{${Array.from({ length: 40 }, (_, i) => `"l${i}":"x"`).join()}}}]`, /more than 24 labels/],
  ['a twin', '[{"id":"a"},{"id":"a"}]', /lists a twice/],
])('a device with %s is a problem, and the others count', (_, text, problem) => {
  const { devices, problems } = parseDevices(text.replace(/\]$/, ',{"id":"good"}]'), 'a')
  expect(devices.map(({ id }) => id)).toContain('good')
  expect(problems).toEqual([expect.stringMatching(problem)])
})

test('values that make no sense are left out', () => {
  const text = '[{"id":"a","utilisation":-3,"memoryUsed":"much","processes":[{"pid":-1},{"pid":"x"},null,{"pid":5,"memory":-1}]}]'
  expect(parseDevices(text, 'h').devices).toEqual([{ id: 'a', labels: { host: 'h' }, processes: [{ pid: 5 }] }])
})

test.each(['', 'garbage', '{"devices":7}', '"text"', 'null'])('%j is a failed run, not an empty host', text => {
  expect(() => parseDevices(text, 'h')).toThrow(/the discovery printed/)
})

test('output without end is cut, and the program that prints it is killed', async () => {
  const program = new BoundedProgram({ clock: systemClock, maxBytes: 10_000 })
  await expect(commandDiscovery({ program, command: 'yes' })(signal)).rejects.toMatchObject({ reason: 'program-output' })
})

test('an aborted run ends at once, and the next run starts when the first program has gone', async () => {
  const program = new BoundedProgram({ clock: systemClock })
  const stop = new AbortController()
  const run = program.run(['/bin/sh', '-c', 'sleep 600'], stop.signal)
  stop.abort(new Error('enough'))
  await expect(run).rejects.toThrow('enough')
  await expect.poll(() => program.run(['/bin/sh', '-c', 'echo here'], signal).catch(() => '')).toBe('here\n')
})
