/** `leasehold elect`. */
import { rmSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Place } from '../../support/cli.ts'

describe('elect', () => {
  test('it runs its command for each term, and the next candidate takes over when the leader is killed', async () => {
    await using here = new Place()
    const stand = (who: string) =>
      here.start(['elect', 'seat', '--ttl', '5s', '--json', '--', 'sh', '-c', `echo ${who} $LEASEHOLD_TOKEN; exec sleep 600`])
    const first = stand('first')
    const [, token] = await first.printed(/first (\d+)/)
    const second = stand('second')
    await second.printed(/waiting/)
    first.process.kill('SIGKILL')
    const [, later] = await second.printed(/second (\d+)/)
    expect(Number(later)).toBeGreaterThan(Number(token))
    second.process.kill('SIGTERM')
    expect((await second.finished).code).toBe(143)
    expect(await here.json('ls')).toEqual([])
  })

  test('it stands again when a term is lost, and exits after --terms with the code of the last term', async () => {
    await using here = new Place()
    const running = here.start([
      'elect',
      'seat',
      '--terms',
      '2',
      '--',
      'sh',
      '-c',
      'echo in office; [ -e again ] && exit 5; touch again; exec sleep 600',
    ])
    await running.printed(/in office/)
    await here.answer(['revoke', 'election/seat'])
    const { code, stdout, stderr } = await running.finished
    expect({ code, stdout }).toEqual({ code: 5, stdout: 'in office\nin office\n' })
    expect(stderr).toMatch(/it was lost; standing for election again/)
  })

  test('it stands again when its log was removed, with a greater token than before', async () => {
    await using here = new Place()
    const stand = ['elect', 'seat', '--ttl', '5s', '--grace', '1s', '--', 'sh', '-c', 'echo term $LEASEHOLD_TOKEN; exec sleep 600']
    const running = here.start(stand)
    const [, token] = await running.printed(/term (\d+)/)
    for (const file of ['', '-log']) rmSync(`${here.url.slice('file:'.length)}${file}`, { recursive: true, force: true })
    const [, later] = await running.printed(/term \d+\nterm (\d+)/)
    expect(Number(later)).toBeGreaterThan(Number(token))
    expect(running.stderr()).toMatch(/opening the store again, then standing for election again/)
    running.process.kill('SIGTERM')
    expect((await running.finished).code).toBe(143)
  })
})
