/** Links of the playground: what they hold comes back, and a damaged one is answered with a sentence. */
import { expect, test } from 'vitest'
import { readLink, writeLink } from '../../playground/link.ts'
import { SCENES } from '../../playground/scenes.ts'
import type { Act } from '../../playground/settings.ts'

test('a link holds a scene, its settings, its acts and the time', () => {
  const acts: readonly Act[] = [
    { at: 500, act: 'acquire', who: 0 },
    { at: 6_000, act: 'pause', who: 0, amount: 12_000 },
    { at: 7_000, act: 'jump', who: 1, amount: -3_600_000 },
    { at: 8_000, act: 'stopLog' },
    { at: 9_000, act: 'loseTail', amount: 4 },
  ]
  const linked = { scene: SCENES[3]!, changed: { settings: { processes: 12, ttl: 9_000 }, acts }, at: 12_300 }
  expect(readLink(`#${writeLink(linked)}`)).toEqual({ kind: 'read', ...linked })
})

test.each(SCENES.map(scene => [scene.name, scene] as const))('the settings and acts of %s fit into a link', (_, scene) => {
  const linked = { scene, changed: { settings: scene.settings, acts: scene.acts }, at: 0 }
  expect(readLink(writeLink(linked))).toMatchObject({ kind: 'read', changed: { acts: scene.acts } })
})

test('an empty fragment is the first scene', () => {
  expect(readLink('')).toEqual({ kind: 'read', scene: SCENES[0], at: 0 })
})

test.each([
  ['scene=nonsense', 'there is no scene “nonsense”'],
  ['scene=split-brain&t=-1', 'its time is not one of the first ten minutes'],
  ['scene=split-brain&t=700000', 'its time is not one of the first ten minutes'],
  ['scene=split-brain&t=1e4', 'its time is not one of the first ten minutes'],
  ['scene=split-brain&scene=split-brain', '“scene=split-brain” is not a part of it'],
  ['scene=split-brain&x=1', '“x=1” is not a part of it'],
  ['scene=split-brain&set=processes:51', 'the setting processes must be from 1 to 50'],
  ['scene=split-brain&set=constructor:1', '“constructor:1” is no setting'],
  ['scene=split-brain&set=ttl:', '“ttl:” is no setting'],
  ['scene=split-brain&do=500toString0', '“500toString0” is no act'],
  ['scene=split-brain&do=500kill7', '“500kill7” names no process'],
  ['scene=split-brain&do=500kill', '“500kill” names no process'],
  ['scene=split-brain&do=500pause0', 'the amount of “500pause0” is not possible'],
  ['scene=split-brain&do=500pause0:999999', 'the amount of “500pause0:999999” is not possible'],
  [`scene=split-brain&do=${'1kill0,'.repeat(250)}`, 'it has more than 200 acts'],
  ['x'.repeat(9_000), 'it is too long'],
  ['<script>alert(1)</script>', '“<script>alert(1)</script…” is not a part of it'],
])('a damaged link is answered with a sentence: %s', (fragment, why) => {
  expect(readLink(`#${fragment}`)).toEqual({
    kind: 'damaged',
    sentence: `The link is damaged: ${why}. Copy it again, or begin with a scene.`,
  })
})
