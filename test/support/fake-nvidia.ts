/** A host with GPUs that do not exist: a program `nvidia-smi` whose answers a test writes. */
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('./fake-nvidia', import.meta.url))

export interface FakeGpu {
  /** Digits of its UUID. */
  readonly uuid: string
  readonly index?: number
  readonly name?: string
  readonly memory?: string
  readonly used?: string
  readonly utilisation?: string
}

export interface FakeApp {
  readonly uuid: string
  readonly pid: number
  readonly memory?: string
  readonly name?: string
}

export function uuidOf(digits: string): string {
  return `GPU-${digits.padStart(8, '0')}-0000-0000-0000-000000000000`
}

export function gpuLine({
  uuid,
  index = 0,
  name = 'NVIDIA A100-SXM4-40GB',
  memory = '40960',
  used = '0',
  utilisation = '0',
}: FakeGpu): string {
  return `${index}, ${uuidOf(uuid)}, ${memory}, ${used}, ${utilisation}, 550.54.15, ${name}`
}

export class FakeNvidia {
  readonly path = mkdtempSync(join(tmpdir(), 'leasehold-gpus-'))

  constructor(...gpus: readonly FakeGpu[]) {
    mkdirSync(this.path, { recursive: true })
    this.setGpus(...gpus)
    this.setApps()
  }

  /** The environment in which a program finds it as `nvidia-smi`. */
  get env(): Record<string, string> {
    return { FAKE_NVIDIA: this.path, PATH: `${folder}:${process.env.PATH}` }
  }

  get program(): string {
    return join(folder, 'nvidia-smi')
  }

  setGpus(...gpus: readonly FakeGpu[]): void {
    this.print('gpus.csv', gpus.map((gpu, i) => `${gpuLine({ index: i, ...gpu })}\n`).join(''))
  }

  setApps(...apps: readonly FakeApp[]): void {
    this.print(
      'apps.csv',
      apps.map(({ uuid, pid, memory = '1024', name = 'python' }) => `${uuidOf(uuid)}, ${pid}, ${memory}, ${name}\n`).join(''),
    )
  }

  print(file: 'gpus.csv' | 'apps.csv' | 'list.txt' | 'exit', text: string): void {
    // At once: the program may read it at any moment, and half a file is a device that is gone.
    writeFileSync(join(this.path, `${file}.new`), text)
    renameSync(join(this.path, `${file}.new`), join(this.path, file))
  }

  hang(hangs: boolean): void {
    if (hangs) writeFileSync(join(this.path, 'hang'), '')
    else rmSync(join(this.path, 'hang'), { force: true })
  }

  succeed(): void {
    rmSync(join(this.path, 'exit'), { force: true })
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true })
  }
}
