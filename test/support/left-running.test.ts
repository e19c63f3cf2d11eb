import { expect, test } from 'vitest'
import { turn } from '../../src/clock.ts'
import { staysBusy } from './left-running.ts'

test('a loop that polls for ever is found, and is gone once it ends', async () => {
  let over = false
  const polling = (async () => {
    while (!over) await turn()
  })()
  expect(await staysBusy()).toBe(true)
  over = true
  await polling
  expect(await staysBusy()).toBe(false)
})

test('timers and work that ends by itself are not taken for such a loop', async () => {
  const timer = setInterval(() => {}, 10)
  const work = (async () => {
    for (let i = 0; i < 20; i++) await turn()
  })()
  expect(await staysBusy()).toBe(false)
  await work
  clearInterval(timer)
})
