import { expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { BoundedProgram } from '../../src/devices/bounded-program.ts'
import { modelOf, nvidiaDiscovery, parseNvidia } from '../../src/devices/nvidia.ts'
import { FakeNvidia, gpuLine, uuidOf } from '../support/fake-nvidia.ts'

const host = 'a'
const never = new AbortController().signal

function discovery(gpus: FakeNvidia, timeout = 20_000) {
  return nvidiaDiscovery({ program: new BoundedProgram({ clock: systemClock, timeout, env: { ...process.env, ...gpus.env } }), host })
}

test('each GPU is a device by its UUID, with model, memory, host, driver and index as labels, and its processes', async () => {
  using gpus = new FakeNvidia({ uuid: '1', utilisation: '37', used: '2048' }, { uuid: '2', name: 'NVIDIA H100 80GB HBM3', memory: '81559' })
  gpus.setApps({ uuid: '1', pid: 4711, memory: '1536', name: '/usr/bin/python, with a comma' })
  const { devices, problems } = await discovery(gpus)(never)
  expect(problems).toEqual([])
  expect(devices).toEqual([
    {
      id: uuidOf('1'),
      labels: { model: 'a100', name: 'NVIDIA A100-SXM4-40GB', host, index: '0', mem: '40', driver: '550.54.15' },
      utilisation: 37,
      memoryUsed: 2,
      processes: [{ pid: 4711, memory: 1.5, name: '/usr/bin/python, with a comma' }],
    },
    {
      id: uuidOf('2'),
      labels: { model: 'h100', name: 'NVIDIA H100 80GB HBM3', host, index: '1', mem: '80', driver: '550.54.15' },
      utilisation: 0,
      memoryUsed: 0,
      processes: [],
    },
  ])
})

test('a device that changes its index keeps its identity', () => {
  const [before] = parseNvidia({ gpus: gpuLine({ uuid: '1', index: 0 }), host }).devices
  const [after] = parseNvidia({ gpus: gpuLine({ uuid: '1', index: 3 }), host }).devices
  expect([before!.id, before!.labels.index, after!.id, after!.labels.index]).toEqual([uuidOf('1'), '0', uuidOf('1'), '3'])
})

test.each([
  ['NVIDIA A100-SXM4-40GB', 'a100'],
  ['NVIDIA A100 80GB PCIe', 'a100'],
  ['NVIDIA H100 80GB HBM3', 'h100'],
  ['NVIDIA H100 NVL', 'h100'],
  ['Tesla V100-SXM2-16GB', 'v100'],
  ['Tesla T4', 't4'],
  ['NVIDIA L40S', 'l40s'],
  ['NVIDIA GeForce RTX 3090', 'rtx3090'],
  ['NVIDIA GeForce RTX 2080 Ti', 'rtx2080ti'],
  ['NVIDIA RTX A6000', 'a6000'],
  ['NVIDIA RTX 6000 Ada Generation', 'rtx6000ada'],
  ['NVIDIA GH200 480GB', 'gh200'],
  ['Graphics Device', 'unknown'],
])('the model of %s is %s', (name, model) => {
  expect(modelOf(name)).toBe(model)
})

test('values that a GPU does not tell are left out, not taken for 0', () => {
  const line = gpuLine({ uuid: '1', utilisation: '[N/A]', used: '[Unknown Error]', memory: '[Not Supported]' })
  const [gpu] = parseNvidia({ gpus: line, host }).devices
  expect(gpu).toEqual({ id: uuidOf('1'), labels: { model: 'a100', name: 'NVIDIA A100-SXM4-40GB', host, index: '0', driver: '550.54.15' } })
  expect(parseNvidia({ gpus: gpuLine({ uuid: '1', utilisation: '250' }), host }).devices[0]!.utilisation).toBeUndefined()
})

test('lines that cannot be understood are problems, and the other lines count', () => {
  const gpus = [
    'Unable to determine the device handle for GPU0000:01:00.0: GPU is lost. Reboot the system to recover this GPU',
    gpuLine({ uuid: '1' }),
    gpuLine({ uuid: '1', index: 1 }),
    '7, GPU-../../etc, 1, 1, 1, 1, x',
    gpuLine({ uuid: '2', name: 'evil\u001b[2J' }),
    `${'9'.repeat(10_000)}`,
  ].join('\n')
  const { devices, problems } = parseNvidia({ gpus, apps: 'GPU-1, no pid\nNo running processes found\n', host })
  expect(devices.map(({ id }) => id)).toEqual([uuidOf('1')])
  expect(problems).toHaveLength(6)
  expect(problems.every(text => text.length < 200)).toBe(true)
})

test('of a GPU that is divided, each MIG instance is a device and the GPU is not', () => {
  const list = [
    `GPU 0: NVIDIA A100-SXM4-40GB (UUID: ${uuidOf('1')})`,
    '  MIG 3g.20gb     Device  0: (UUID: MIG-aaaaaaaa-1111-2222-3333-444444444444)',
    '  MIG 1g.5gb      Device  1: (UUID: MIG-bbbbbbbb-1111-2222-3333-444444444444)',
    `GPU 1: NVIDIA A100-SXM4-40GB (UUID: ${uuidOf('2')})`,
  ].join('\n')
  const gpus = `${gpuLine({ uuid: '1', utilisation: '[N/A]' })}\n${gpuLine({ uuid: '2', index: 1 })}`
  const apps = 'MIG-aaaaaaaa-1111-2222-3333-444444444444, 7, 100, python'
  const { devices } = parseNvidia({ gpus, list, apps, host })
  expect(devices.map(({ id, labels, processes }) => [id.slice(0, 12), labels.mig, labels.mem, labels.gpu, processes?.length])).toEqual([
    ['MIG-aaaaaaaa', '3g.20gb', '20', uuidOf('1'), 1],
    ['MIG-bbbbbbbb', '1g.5gb', '5', uuidOf('1'), 0],
    [uuidOf('2').slice(0, 12), undefined, '40', undefined, 0],
  ])
})

test('a thousand lines and processes are cut at the limits', () => {
  const gpus = Array.from({ length: 1_000 }, (_, i) => gpuLine({ uuid: String(i), index: i })).join('\n')
  const apps = Array.from({ length: 1_000 }, (_, i) => `${uuidOf('0')}, ${i + 1}, 1, x`).join('\n')
  const { devices, problems } = parseNvidia({ gpus, apps, host })
  expect([devices.length, devices[0]!.processes!.length]).toEqual([256, 64])
  expect(problems[0]).toMatch(/more than 256 devices/)
})

test('a program that hangs, fails or is missing says so, and none of them means that the host has no GPUs', async () => {
  using gpus = new FakeNvidia({ uuid: '1' })
  gpus.print('exit', '9')
  gpus.print('gpus.csv', 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.\n')
  await expect(discovery(gpus)(never)).rejects.toThrow(/ended with code 9: NVIDIA-SMI has failed/)
  gpus.succeed()
  gpus.print('gpus.csv', 'No devices were found\n')
  expect(await discovery(gpus)(never)).toEqual({ devices: [], problems: [] })
  gpus.hang(true)
  await expect(discovery(gpus, 50)(never)).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'program-timeout' })
  const program = new BoundedProgram({ clock: systemClock })
  await expect(nvidiaDiscovery({ program, path: '/nonexistent/nvidia-smi' })(never)).rejects.toMatchObject({ reason: 'program-missing' })
})
